"""The fairseq plugin: patches of fairseq, models, tasks, criterions, generation, side inputs and checkpoints."""
