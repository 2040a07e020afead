"""MobileNetV2 (arXiv:1801.04381) and MobileNetV3 (arXiv:1905.02244); names as in TorchVision."""
from functools import partial

from .. import nn
from ._blocks import ConvNormActivation, SqueezeExcitation, divisible, init_images


class InvertedResidual(nn.Module):
    """Widens by expand_ratio, convolves each channel by itself, and narrows again."""

    def __init__(self, inputs, outputs, stride, expand_ratio):
        super().__init__()
        hidden = int(round(inputs * expand_ratio))
        layers = [ConvNormActivation(inputs, hidden, 1, activation_layer=nn.ReLU6)] if expand_ratio != 1 else []
        layers += [
            ConvNormActivation(hidden, hidden, stride=stride, groups=hidden, activation_layer=nn.ReLU6),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


class MobileNetV2(nn.Module):
    """Input (N, 3, H, W), output (N, num_classes). width_mult: how the channels are multiplied. dropout: the probability of zeros before the classifier.

    Raises ValueError for a negative num_classes and a dropout outside of 0 to 1; TypeError for an unknown argument. A call raises ValueError for another
    number of channels than 3.
    """

    def __init__(self, num_classes=1000, width_mult=1.0, dropout=0.2):
        super().__init__()
        channels, last = divisible(32 * width_mult), divisible(1280 * max(1.0, width_mult))
        features = [ConvNormActivation(3, channels, stride=2, activation_layer=nn.ReLU6)]
        for ratio, width, count, stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
            outputs = divisible(width * width_mult)
            for i in range(count):
                features.append(InvertedResidual(channels, outputs, stride if i == 0 else 1, ratio))
                channels = outputs
        features.append(ConvNormActivation(channels, last, 1, activation_layer=nn.ReLU6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(last, num_classes))
        init_images(self)

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1)).flatten(1))


class InvertedResidualV3(nn.Module):
    """The same with squeeze and excitation, another activation, and a width of its own."""

    def __init__(self, inputs, kernel, expanded, outputs, squeeze, hard_swish, stride, norm):
        super().__init__()
        activation = nn.Hardswish if hard_swish else nn.ReLU
        layers = [ConvNormActivation(inputs, expanded, 1, norm_layer=norm, activation_layer=activation)] if expanded != inputs else []
        layers.append(ConvNormActivation(expanded, expanded, kernel, stride, expanded, norm_layer=norm, activation_layer=activation))
        if squeeze:
            layers.append(SqueezeExcitation(expanded, divisible(expanded // 4), scale_activation=nn.Hardsigmoid))
        layers.append(ConvNormActivation(expanded, outputs, 1, norm_layer=norm, activation_layer=None))
        self.block = nn.Sequential(*layers)
        self.use_res_connect = stride == 1 and inputs == outputs

    def forward(self, x):
        return x + self.block(x) if self.use_res_connect else self.block(x)


class MobileNetV3(nn.Module):
    """blocks: (inputs, kernel, expanded, outputs, squeeze and excitation, hard swish, stride) of each. Input (N, 3, H, W), output (N, num_classes).

    last_channel: the width of the classifier's hidden layer. dropout: the probability of zeros behind it.

    Raises ValueError for a negative num_classes and a dropout outside of 0 to 1; TypeError for an unknown argument. A call raises ValueError for another
    number of channels than 3.
    """

    def __init__(self, blocks, last_channel, num_classes=1000, dropout=0.2):
        super().__init__()
        norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        features = [ConvNormActivation(3, blocks[0][0], stride=2, norm_layer=norm, activation_layer=nn.Hardswish)]
        features += [InvertedResidualV3(*b, norm) for b in blocks]
        inputs = blocks[-1][3]
        features.append(ConvNormActivation(inputs, 6 * inputs, 1, norm_layer=norm, activation_layer=nn.Hardswish))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(6 * inputs, last_channel), nn.Hardswish(), nn.Dropout(dropout), nn.Linear(last_channel, num_classes))
        init_images(self)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


def mobilenet_v2(**kwargs):
    """MobileNetV2 (Sandler et al., 2018), 3.5 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. The arguments are those of the
    class MobileNetV2.

    Raises TypeError for an unknown argument, and ValueError for a dropout outside of 0 to 1.
    """
    return MobileNetV2(**kwargs)


def mobilenet_v3_large(**kwargs):
    """MobileNetV3 large (Howard et al., 2019), 5.5 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. num_classes (1000) and
    dropout (0.2) may be given.

    Raises TypeError for an unknown argument, and ValueError for a dropout outside of 0 to 1.
    """
    blocks = [
        (16, 3, 16, 16, False, False, 1), (16, 3, 64, 24, False, False, 2), (24, 3, 72, 24, False, False, 1), (24, 5, 72, 40, True, False, 2),
        (40, 5, 120, 40, True, False, 1), (40, 5, 120, 40, True, False, 1), (40, 3, 240, 80, False, True, 2), (80, 3, 200, 80, False, True, 1),
        (80, 3, 184, 80, False, True, 1), (80, 3, 184, 80, False, True, 1), (80, 3, 480, 112, True, True, 1), (112, 3, 672, 112, True, True, 1),
        (112, 5, 672, 160, True, True, 2), (160, 5, 960, 160, True, True, 1), (160, 5, 960, 160, True, True, 1),
    ]  # fmt: skip
    return MobileNetV3(blocks, 1280, **kwargs)


def mobilenet_v3_small(**kwargs):
    """MobileNetV3 small (Howard et al., 2019), 2.5 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. num_classes (1000) and
    dropout (0.2) may be given.

    Raises TypeError for an unknown argument, and ValueError for a dropout outside of 0 to 1.
    """
    blocks = [
        (16, 3, 16, 16, True, False, 2), (16, 3, 72, 24, False, False, 2), (24, 3, 88, 24, False, False, 1), (24, 5, 96, 40, True, True, 2),
        (40, 5, 240, 40, True, True, 1), (40, 5, 240, 40, True, True, 1), (40, 5, 120, 48, True, True, 1), (48, 5, 144, 48, True, True, 1),
        (48, 5, 288, 96, True, True, 2), (96, 5, 576, 96, True, True, 1), (96, 5, 576, 96, True, True, 1),
    ]  # fmt: skip
    return MobileNetV3(blocks, 1024, **kwargs)
