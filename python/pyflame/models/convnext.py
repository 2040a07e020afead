"""ConvNeXt (arXiv:2201.03545); names as in TorchVision."""
from functools import partial

from .. import nn
from .._C import full
from ._blocks import ConvNormActivation, StochasticDepth


class LayerNorm2d(nn.LayerNorm):
    """Layer norm over the channels of (N, C, H, W)."""

    def forward(self, x):
        x = x.permute(0, 2, 3, 1)
        return nn.functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps).permute(0, 3, 1, 2)


class Permute(nn.Module):
    def __init__(self, *dims):
        super().__init__()
        self.dims = dims

    def forward(self, x):
        return x.permute(*self.dims)


class CNBlock(nn.Module):
    """A 7x7 convolution of each channel, then two linear layers at each position."""

    def __init__(self, dim, layer_scale, drop):
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, 7, padding=3, groups=dim), Permute(0, 2, 3, 1), nn.LayerNorm(dim, eps=1e-6), nn.Linear(dim, 4 * dim), nn.GELU(),
            nn.Linear(4 * dim, dim), Permute(0, 3, 1, 2),
        )  # fmt: skip
        self.layer_scale = nn.Parameter(full((dim, 1, 1), layer_scale))
        self.stochastic_depth = StochasticDepth(drop)

    def forward(self, x):
        return x + self.stochastic_depth(self.layer_scale * self.block(x))


class ConvNeXt(nn.Module):
    """stages: (channels, blocks) of each. Input (N, 3, H, W), output (N, num_classes).

    stochastic_depth_prob: the probability that a sample skips a block rises from 0 at the first block to this at the last. layer_scale: what the output of a block is
    multiplied by at first, before training changes it.

    Raises ValueError for a negative num_classes and a stochastic_depth_prob outside of 0 to 1; TypeError for an unknown argument. A call raises ValueError
    for another number of channels than 3 and an image below 4 x 4.
    """

    def __init__(self, stages, stochastic_depth_prob=0.0, layer_scale=1e-6, num_classes=1000):
        super().__init__()
        if not 0 <= stochastic_depth_prob <= 1:
            raise ValueError(f"ConvNeXt: stochastic_depth_prob is out of range; got {stochastic_depth_prob}; expected 0 to 1")
        norm = partial(LayerNorm2d, eps=1e-6)
        features = [ConvNormActivation(3, stages[0][0], 4, 4, norm_layer=norm, activation_layer=None, padding=0, bias=True)]
        total, done = sum(n for _, n in stages), 0
        for i, (dim, blocks) in enumerate(stages):
            layers = []
            for _ in range(blocks):
                layers.append(CNBlock(dim, layer_scale, stochastic_depth_prob * done / max(1, total - 1)))
                done += 1
            features.append(nn.Sequential(*layers))
            if i + 1 < len(stages):
                features.append(nn.Sequential(norm(dim), nn.Conv2d(dim, stages[i + 1][0], 2, 2)))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(norm(stages[-1][0]), nn.Flatten(1), nn.Linear(stages[-1][0], num_classes))
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(m.weight, std=0.02)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)))


def convnext_tiny(**kwargs):
    """ConvNeXt tiny (Liu et al., 2022), 28.6 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. stochastic_depth_prob is 0.1 by
    default; the arguments are those of ConvNeXt, without stages.

    Raises TypeError for an unknown argument, and ValueError for a stochastic_depth_prob outside of 0 to 1.
    """
    return ConvNeXt([(96, 3), (192, 3), (384, 9), (768, 3)], **{"stochastic_depth_prob": 0.1, **kwargs})


def convnext_small(**kwargs):
    """ConvNeXt small (Liu et al., 2022), 50.2 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. stochastic_depth_prob is 0.4 by
    default; the arguments are those of ConvNeXt, without stages.

    Raises TypeError for an unknown argument, and ValueError for a stochastic_depth_prob outside of 0 to 1.
    """
    return ConvNeXt([(96, 3), (192, 3), (384, 27), (768, 3)], **{"stochastic_depth_prob": 0.4, **kwargs})


def convnext_base(**kwargs):
    """ConvNeXt base (Liu et al., 2022), 88.6 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. stochastic_depth_prob is 0.5 by
    default; the arguments are those of ConvNeXt, without stages.

    Raises TypeError for an unknown argument, and ValueError for a stochastic_depth_prob outside of 0 to 1.
    """
    return ConvNeXt([(128, 3), (256, 3), (512, 27), (1024, 3)], **{"stochastic_depth_prob": 0.5, **kwargs})


def convnext_large(**kwargs):
    """ConvNeXt large (Liu et al., 2022), 197.8 million parameters, drawn at random: input [N, 3, H, W] -> [N, num_classes]. stochastic_depth_prob is 0.5 by
    default; the arguments are those of ConvNeXt, without stages.

    Raises TypeError for an unknown argument, and ValueError for a stochastic_depth_prob outside of 0 to 1.
    """
    return ConvNeXt([(192, 3), (384, 3), (768, 27), (1536, 3)], **{"stochastic_depth_prob": 0.5, **kwargs})
