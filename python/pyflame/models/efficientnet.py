"""EfficientNet (arXiv:1905.11946); names as in TorchVision."""
import math
from functools import partial

from .. import nn
from ._blocks import ConvNormActivation, SqueezeExcitation, StochasticDepth, divisible

# (widening, kernel, stride, inputs, outputs, blocks) of the stages of B0.
_STAGES = [(1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3), (6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)]


class MBConv(nn.Module):
    """Widens, convolves each channel by itself, squeezes and excites, narrows."""

    def __init__(self, inputs, outputs, kernel, stride, widening, drop, norm):
        super().__init__()
        hidden = divisible(inputs * widening)
        layers = [ConvNormActivation(inputs, hidden, 1, norm_layer=norm, activation_layer=nn.SiLU)] if hidden != inputs else []
        layers += [
            ConvNormActivation(hidden, hidden, kernel, stride, hidden, norm_layer=norm, activation_layer=nn.SiLU),
            SqueezeExcitation(hidden, max(1, inputs // 4), activation=nn.SiLU),
            ConvNormActivation(hidden, outputs, 1, norm_layer=norm, activation_layer=None),
        ]
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(drop)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.block(x)
        return x + self.stochastic_depth(y) if self.use_res_connect else y


class EfficientNet(nn.Module):
    """width, depth: how the channels and blocks of B0 are multiplied. Input (N, 3, H, W), output (N, num_classes).

    dropout: the probability of zeros before the classifier. stochastic_depth_prob: the probability that a sample skips a block rises from 0 at the first block to
    nearly this at the last. norm_layer: makes the normalization of so many channels.

    Raises ValueError for a negative num_classes and a probability outside of 0 to 1; TypeError for an unknown argument. A call raises ValueError for
    another number of channels than 3.
    """

    def __init__(self, width=1.0, depth=1.0, dropout=0.2, stochastic_depth_prob=0.2, num_classes=1000, norm_layer=nn.BatchNorm2d):
        super().__init__()
        if not 0 <= stochastic_depth_prob <= 1:
            raise ValueError(f"EfficientNet: stochastic_depth_prob is out of range; got {stochastic_depth_prob}; expected 0 to 1")
        stages = [(e, k, s, divisible(i * width), divisible(o * width), math.ceil(n * depth)) for e, k, s, i, o, n in _STAGES]
        features = [ConvNormActivation(3, stages[0][3], stride=2, norm_layer=norm_layer, activation_layer=nn.SiLU)]
        total, done = sum(s[-1] for s in stages), 0
        for widening, kernel, stride, inputs, outputs, blocks in stages:
            layers = []
            for i in range(blocks):
                drop = stochastic_depth_prob * done / total
                layers.append(MBConv(inputs if i == 0 else outputs, outputs, kernel, stride if i == 0 else 1, widening, drop, norm_layer))
                done += 1
            features.append(nn.Sequential(*layers))
        last = stages[-1][4]
        features.append(ConvNormActivation(last, 4 * last, 1, norm_layer=norm_layer, activation_layer=nn.SiLU))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * last, num_classes))
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out")
                if m.bias is not None:
                    nn.init.zeros_(m.bias)
        bound = 1 / math.sqrt(num_classes)
        nn.init.uniform_(self.classifier[1].weight, -bound, bound)
        nn.init.zeros_(self.classifier[1].bias)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


_SLOW_NORM = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)


def efficientnet_b0(**kwargs):
    """EfficientNet B0, for images of 224 pixels: 5.3 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.0, depth=1.0, dropout=0.2), **kwargs})


def efficientnet_b1(**kwargs):
    """EfficientNet B1, for images of 240 pixels: 7.8 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.0, depth=1.1, dropout=0.2), **kwargs})


def efficientnet_b2(**kwargs):
    """EfficientNet B2, for images of 288 pixels: 9.1 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.1, depth=1.2, dropout=0.3), **kwargs})


def efficientnet_b3(**kwargs):
    """EfficientNet B3, for images of 300 pixels: 12.2 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.2, depth=1.4, dropout=0.3), **kwargs})


def efficientnet_b4(**kwargs):
    """EfficientNet B4, for images of 380 pixels: 19.3 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.4, depth=1.8, dropout=0.4), **kwargs})


def efficientnet_b5(**kwargs):
    """EfficientNet B5, for images of 456 pixels: 30.4 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.6, depth=2.2, dropout=0.4, norm_layer=_SLOW_NORM), **kwargs})


def efficientnet_b6(**kwargs):
    """EfficientNet B6, for images of 528 pixels: 43.0 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=1.8, depth=2.6, dropout=0.5, norm_layer=_SLOW_NORM), **kwargs})


def efficientnet_b7(**kwargs):
    """EfficientNet B7, for images of 600 pixels: 66.3 million parameters. Arguments as EfficientNet's.

    Raises what EfficientNet raises, such as TypeError for an unknown argument.
    """
    return EfficientNet(**{**dict(width=2.0, depth=3.1, dropout=0.5, norm_layer=_SLOW_NORM), **kwargs})
