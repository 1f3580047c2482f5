"""A convolutional network on the 1797 digits of scikit-learn: 8 x 8 pixels, 10 classes, 1.1 million parameters."""

import torch
from torch import nn

VALIDATION = 360  # of the 1797


class DigitsTask:
    batch = 32
    optimizer = "sgd"
    lr = {"sgd": 0.02, "adamw": 1e-3}

    def __init__(self, seed):
        from sklearn.datasets import load_digits

        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(digits.target, dtype=torch.int64)
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
        self.images, self.labels = images[order], labels[order]
        self.seed = seed

    def model(self):
        return nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(64, 128, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(128 * 16, 512),
            nn.ReLU(),
            nn.Linear(512, 10),
        )

    def sample(self, step, rank, ranks, batch):
        """Values of one rank's batch; ranks draw from the same set, without overlap within a step."""
        source = torch.Generator().manual_seed(self.seed * 1_000_003 + step)
        chosen = VALIDATION + torch.randperm(len(self.labels) - VALIDATION, generator=source)
        chosen = chosen[rank * batch : (rank + 1) * batch]
        return self.images[chosen], self.labels[chosen]

    @staticmethod
    def loss(model, sample):
        return nn.functional.cross_entropy(model(sample[0]), sample[1])

    def validation(self, rank, ranks):
        """This rank's share of the validation set, in batches."""
        part = slice(rank, VALIDATION, ranks)
        return [(self.images[part], self.labels[part])]
