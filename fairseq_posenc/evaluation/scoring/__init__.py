"""Score trained models. The file score.json of a run contains its scores, training speed, validation losses and peak memory."""
