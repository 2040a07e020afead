"""U-Net (arXiv:1505.04597) with padded convolutions and batch norm."""
from .. import cat, nn


class DoubleConv(nn.Module):
    def __init__(self, inputs, outputs, middle=None):
        super().__init__()
        middle = middle or outputs
        self.double_conv = nn.Sequential(
            nn.Conv2d(inputs, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True),
            nn.Conv2d(middle, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(inputs, outputs))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, inputs, outputs, bilinear):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(inputs, outputs, inputs // 2)
        else:
            self.up = nn.ConvTranspose2d(inputs, inputs // 2, 2, 2)
            self.conv = DoubleConv(inputs, outputs)

    def forward(self, x, skip):
        x = self.up(x)
        rows, columns = skip.shape[2] - x.shape[2], skip.shape[3] - x.shape[3]
        if rows or columns:
            x = nn.functional.pad(x, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2))
        return self.conv(cat([skip, x], dim=1))


class OutConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x):
        return self.conv(x)


class UNet(nn.Module):
    """Four steps down, four up. bilinear: the steps up interpolate instead of a transposed convolution. width: channels of the first step.

    Input (N, n_channels, H, W) with H and W of 16 at least, output (N, n_classes, H, W).

    Raises ValueError for a negative size, and TypeError for a size that is not an int. A call raises ValueError for another number of channels, and for an
    image that is too small.
    """

    def __init__(self, n_channels=3, n_classes=2, bilinear=False, width=64):
        super().__init__()
        self.n_channels, self.n_classes, self.bilinear = n_channels, n_classes, bilinear
        half = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, width)
        self.down1, self.down2 = Down(width, 2 * width), Down(2 * width, 4 * width)
        self.down3, self.down4 = Down(4 * width, 8 * width), Down(8 * width, 16 * width // half)
        self.up1, self.up2 = Up(16 * width, 8 * width // half, bilinear), Up(8 * width, 4 * width // half, bilinear)
        self.up3, self.up4 = Up(4 * width, 2 * width // half, bilinear), Up(2 * width, width, bilinear)
        self.outc = OutConv(width, n_classes)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x4 = self.down3(x3)
        x = self.up1(self.down4(x4), x4)
        return self.outc(self.up4(self.up3(self.up2(x, x3), x2), x1))
