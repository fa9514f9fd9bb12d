"""Shared by all commands: reading and writing files, messages, option types, progress and versions."""
