"""Print the number of GPUs that PyTorch finds on this machine."""

import torch

print(torch.cuda.device_count())
