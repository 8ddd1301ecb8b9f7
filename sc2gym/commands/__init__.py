"""The subcommands of `sc2gym`, one module each: `add_arguments(parser)` and `run(arguments)`."""
