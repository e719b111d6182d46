"""Pure functions of the log: each reads facts and answers with conclusions."""
