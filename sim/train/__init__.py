"""Real ranks that train and are broken on purpose: `nemesis demo train`."""
