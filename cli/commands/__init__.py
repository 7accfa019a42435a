"""The commands: options and output; what they do lives in the rooms and in the other modules of this one."""
