"""The subcommands: each module adds its arguments to a parser and carries them out."""
