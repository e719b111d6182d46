"""Where the nodes of a job should lie: candidates by many rules, what each costs, and bounds."""
