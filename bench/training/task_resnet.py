"""ResNet-18 (11 million parameters, 32 x 32 form) on a synthetic set that can be learnt: made from seeds, no download.

Class c is a mixture of three smooth random patterns; a sample is the sum of the class's patterns with random weights,
shifted by up to 4 pixels, times a contrast, plus a pattern of no class, plus noise. The set is infinite: every sample
is new, so training loss is generalisation loss.
"""

import torch
from torch import nn

CLASSES, PATTERNS, SIZE = 10, 3, 32


class Basic(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.short = nn.Identity()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


def resnet18():
    layers = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for inner, outer, stride in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]:
        layers += [Basic(inner, outer, stride), Basic(outer, outer, 1)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


def smooth(source, count):
    """Random images without detail below 4 pixels, unit variance."""
    coarse = torch.randn(count, 3, SIZE // 4, SIZE // 4, generator=source)
    fine = nn.functional.interpolate(coarse, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return fine / fine.flatten(1).std(1).view(-1, 1, 1, 1)


class ResnetTask:
    batch = 8
    optimizer = "sgd"
    lr = {"sgd": 0.05, "adamw": 1e-3}

    def __init__(self, seed):
        self.seed = seed
        self.patterns = smooth(torch.Generator().manual_seed(7), CLASSES * PATTERNS).view(
            CLASSES, PATTERNS, 3, SIZE, SIZE
        )

    def model(self):
        return resnet18()

    def _draw(self, number, count):
        source = torch.Generator().manual_seed(number)
        labels = torch.randint(0, CLASSES, (count,), generator=source)
        weights = torch.randn(count, PATTERNS, 1, 1, 1, generator=source).abs()
        images = (self.patterns[labels] * weights).sum(1)
        shifts = torch.randint(-4, 5, (count, 2), generator=source).tolist()
        images = torch.stack([image.roll(shift, (1, 2)) for image, shift in zip(images, shifts)])
        images = images + 2 * smooth(source, count) + torch.randn(images.shape, generator=source)
        return images / 3, labels

    def sample(self, step, rank, ranks, batch):
        return self._draw((self.seed * 1_000_003 + step) * 64 + rank, batch)

    @staticmethod
    def loss(model, sample):
        return nn.functional.cross_entropy(model(sample[0]), sample[1])

    def validation(self, rank, ranks):
        return [self._draw(2**50 + rank * 64 + part, 64) for part in range(256 // 64 // ranks or 1)]
