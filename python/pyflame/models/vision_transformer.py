"""Vision Transformer (arXiv:2010.11929); names as in TorchVision."""
import math
from collections import OrderedDict
from functools import partial

from .. import cat, nn, zeros
from .._C import randn


class MLPBlock(nn.Sequential):
    def __init__(self, dim, hidden, dropout):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, dim), nn.Dropout(dropout))
        for layer in (self[0], self[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)


class EncoderBlock(nn.Module):
    def __init__(self, heads, dim, hidden, dropout, attention_dropout):
        super().__init__()
        norm = partial(nn.LayerNorm, eps=1e-6)
        self.ln_1 = norm(dim)
        self.self_attention = nn.MultiheadAttention(dim, heads, dropout=attention_dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.ln_2 = norm(dim)
        self.mlp = MLPBlock(dim, hidden, dropout)

    def forward(self, x):
        y = self.ln_1(x)
        x = x + self.dropout(self.self_attention(y, y, y, need_weights=False)[0])
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self, length, layers, heads, dim, hidden, dropout, attention_dropout):
        super().__init__()
        self.pos_embedding = nn.Parameter(randn(1, length, dim) * 0.02)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.Sequential(OrderedDict((f"encoder_layer_{i}", EncoderBlock(heads, dim, hidden, dropout, attention_dropout)) for i in range(layers)))
        self.ln = nn.LayerNorm(dim, eps=1e-6)

    def forward(self, x):
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class VisionTransformer(nn.Module):
    """Patches of the image are tokens; the class is read from a token of its own. Input (N, 3, image_size, image_size), output (N, num_classes).

    patch_size: the side of a patch, which divides image_size (ValueError). num_layers: blocks. num_heads: heads of a block. hidden_dim: the width.
    mlp_dim: the width of the feed-forward block. dropout, attention_dropout: probabilities of zeros, of a block and in its attention.
    """

    def __init__(self, image_size, patch_size, num_layers, num_heads, hidden_dim, mlp_dim, dropout=0.0, attention_dropout=0.0, num_classes=1000):
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"VisionTransformer: the image is no whole number of patches; got {image_size} and {patch_size}; expected a multiple")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.conv_proj = nn.Conv2d(3, hidden_dim, patch_size, patch_size)
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        self.encoder = Encoder((image_size // patch_size) ** 2 + 1, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout)
        self.heads = nn.Sequential(OrderedDict(head=nn.Linear(hidden_dim, num_classes)))
        nn.init.trunc_normal_(self.conv_proj.weight, std=math.sqrt(1 / (3 * patch_size**2)))
        nn.init.zeros_(self.conv_proj.bias)
        nn.init.zeros_(self.heads.head.weight)
        nn.init.zeros_(self.heads.head.bias)

    def forward(self, x):
        if x.shape[2] != self.image_size or x.shape[3] != self.image_size:
            raise ValueError(f"VisionTransformer: wrong size of image; got {tuple(x.shape[2:])}; expected ({self.image_size}, {self.image_size})")
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.heads(self.encoder(x)[:, 0])


def vit_b_16(**kwargs):
    """ViT base (Dosovitskiy et al., 2021) with patches of 16 x 16 pixels, 86.6 million parameters, drawn at random: input [N, 3, 224, 224] -> [N,
    num_classes]. The arguments are those of VisionTransformer, by name.

    Raises TypeError for an unknown argument, and ValueError for an image_size that is no multiple of the patch. A call raises ValueError for an image of
    another size.
    """
    return VisionTransformer(**{**dict(image_size=224, patch_size=16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072), **kwargs})


def vit_b_32(**kwargs):
    """ViT base (Dosovitskiy et al., 2021) with patches of 32 x 32 pixels, 88.2 million parameters, drawn at random: input [N, 3, 224, 224] -> [N,
    num_classes]. The arguments are those of VisionTransformer, by name.

    Raises TypeError for an unknown argument, and ValueError for an image_size that is no multiple of the patch. A call raises ValueError for an image of
    another size.
    """
    return vit_b_16(**{"patch_size": 32, **kwargs})


def vit_l_16(**kwargs):
    """ViT large (Dosovitskiy et al., 2021) with patches of 16 x 16 pixels, 304.3 million parameters, drawn at random: input [N, 3, 224, 224] -> [N,
    num_classes]. The arguments are those of VisionTransformer, by name.

    Raises TypeError for an unknown argument, and ValueError for an image_size that is no multiple of the patch. A call raises ValueError for an image of
    another size.
    """
    return VisionTransformer(**{**dict(image_size=224, patch_size=16, num_layers=24, num_heads=16, hidden_dim=1024, mlp_dim=4096), **kwargs})


def vit_l_32(**kwargs):
    """ViT large (Dosovitskiy et al., 2021) with patches of 32 x 32 pixels, 306.5 million parameters, drawn at random: input [N, 3, 224, 224] -> [N,
    num_classes]. The arguments are those of VisionTransformer, by name.

    Raises TypeError for an unknown argument, and ValueError for an image_size that is no multiple of the patch. A call raises ValueError for an image of
    another size.
    """
    return vit_l_16(**{"patch_size": 32, **kwargs})
