"""Every write of an order, split by verb. Views, tasks, admin and commands call these and nothing else."""
