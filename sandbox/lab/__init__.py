"""The lab: stories of real outages, played again on our own code, with our figures beside theirs."""
