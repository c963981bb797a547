"""A DataLoader loop: the adapter stands where the model stood.

Run it with `python examples/dataloader_loop.py`.
"""

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

import tapr


class Digits(Dataset[Tensor]):
    """Any data set of image tensors in [0, 1]; labels are not needed."""

    def __init__(self, pixels: np.ndarray) -> None:
        self.pixels = pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, number: int) -> Tensor:
        return torch.from_numpy(self.pixels[number]).permute(2, 0, 1).float() / 255


handwritten = tapr.datasets.load("digits").images[:500]
loader = DataLoader(Digits(handwritten), batch_size=100, shuffle=False)  # in the order of arrival
adapter = tapr.adapt(tapr.models.load("digits-small"))

with torch.no_grad():  # the loop you have may be under no_grad: adaptation turns gradients on
    for number, images in enumerate(loader):
        probabilities = adapter(images).softmax(1)
        sure = probabilities.max(1).values.mean()
        print(f"batch {number}: mean confidence {sure:.2f}, {adapter.refused} steps refused")

adapter.reset()  # the source model again, for another stream
