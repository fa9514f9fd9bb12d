"""Everything that imports fairseq: the plugin, its patches, models, tasks, criterions, generation and checkpoints."""
