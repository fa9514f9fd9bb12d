"""What all commands share: reading and writing files, messages, option types, progress and versions."""
