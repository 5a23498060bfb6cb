"""Small convolutional networks: two convolutions, two dense layers, and the logits."""

from torch import Tensor, nn


class DigitsCNN(nn.Module):
    """The shape of the paper's MNIST network for 8x8 images: two convolutions and two dense layers.

    Each hidden layer is one child with its activation inside, so that layer sets mean what is passed on.
    """

    layer_names = ("conv1", "conv2", "fc1", "fc2")

    def __init__(
        self,
        input_shape: tuple[int, int, int] = (1, 8, 8),
        num_classes: int = 10,
        *,
        width: int = 16,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        channels, height, breadth = input_shape
        self.conv1 = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU())
        self.conv2 = nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        features = 2 * width * (height // 2) * (breadth // 2)
        self.fc1 = nn.Sequential(nn.Flatten(), nn.Linear(features, 4 * width), nn.ReLU(), nn.Dropout(dropout))
        self.fc2 = nn.Sequential(nn.Linear(4 * width, 4 * width), nn.ReLU(), nn.Dropout(dropout))
        self.out = nn.Linear(4 * width, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of a batch of images."""
        logits: Tensor = self.out(self.fc2(self.fc1(self.conv2(self.conv1(x)))))
        return logits
