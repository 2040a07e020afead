"""What several networks for images have in common."""
from .. import nn
from .._C import rand


class ConvNormActivation(nn.Sequential):
    """A convolution that keeps the size (divided by the stride), a norm and an activation: children '0', '1' and '2'."""

    def __init__(self, inputs, outputs, kernel_size=3, stride=1, groups=1, dilation=1, norm_layer=nn.BatchNorm2d, activation_layer=nn.ReLU, padding=None, bias=None):
        if padding is None:
            padding = (kernel_size - 1) // 2 * dilation
        layers = [nn.Conv2d(inputs, outputs, kernel_size, stride, padding, dilation, groups, bias=norm_layer is None if bias is None else bias)]
        if norm_layer is not None:
            layers.append(norm_layer(outputs))
        if activation_layer is not None:
            layers.append(activation_layer())
        super().__init__(*layers)
        self.out_channels = outputs


class SqueezeExcitation(nn.Module):
    """Scales each channel by a number between 0 and 1 that is computed of the means of all channels (arXiv:1709.01507)."""

    def __init__(self, channels, squeeze_channels, activation=nn.ReLU, scale_activation=nn.Sigmoid):
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, x):
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class StochasticDepth(nn.Module):
    """In training, leaves out the branch of a sample with probability p and scales the others by 1 / (1 - p) (arXiv:1603.09382)."""

    def __init__(self, p):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"StochasticDepth: the probability is out of range; got {p}; expected 0 to 1")
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        keep = rand([x.shape[0]] + [1] * (x.dim() - 1), dtype=x.dtype, device=x.device) >= self.p
        kept = x * keep.to(x.dtype)
        return kept / (1 - self.p) if self.p < 1 else kept

    def extra_repr(self):
        return f"p={self.p}"


def divisible(channels, divisor=8, smallest=None):
    """The multiple of `divisor` that is nearest to `channels`, but not more than a tenth below it."""
    rounded = max(smallest or divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def init_images(model, mode="fan_out", linear_std=0.01):
    """Kaiming for convolutions, ones and zeros for norms, a normal distribution for linear layers."""
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode=mode)
            if m.bias is not None:
                nn.init.zeros_(m.bias)
        elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
            nn.init.ones_(m.weight)
            nn.init.zeros_(m.bias)
        elif isinstance(m, nn.Linear):
            nn.init.normal_(m.weight, 0, linear_std)
            nn.init.zeros_(m.bias)
