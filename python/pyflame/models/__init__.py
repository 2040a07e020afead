"""Models with the names and state dicts of well-known libraries, so that their weights load.

Images (the names of TorchVision): resnet18 to resnet152, mobilenet_v2, mobilenet_v3_small and _large, efficientnet_b0 to b7, convnext_tiny to _large,
vit_b_16, vit_b_32, vit_l_16, vit_l_32. UNet has the names that are common for segmentation. Language: GPT2LMHeadModel and BertModel (the names of
Hugging Face), LSTMLanguageModel (those of PyTorch's example). Tables of features: MLP.

    model = pf.models.resnet50()
    model.load_state_dict(pf.load("resnet50.pth"))
    model.eval()

    encoder = pf.models.from_folder("all-MiniLM-L6-v2")   # config.json and weights

No weights are downloaded. Images are float32 of shape (N, 3, height, width); each builder says how they are normalised where it matters.
"""
from importlib import import_module

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from .resnet import (
        BasicBlock as BasicBlock,
        Bottleneck as Bottleneck,
        ResNet as ResNet,
        resnet101 as resnet101,
        resnet152 as resnet152,
        resnet18 as resnet18,
        resnet34 as resnet34,
        resnet50 as resnet50,
    )
    from .mobilenet import (
        MobileNetV2 as MobileNetV2,
        MobileNetV3 as MobileNetV3,
        mobilenet_v2 as mobilenet_v2,
        mobilenet_v3_large as mobilenet_v3_large,
        mobilenet_v3_small as mobilenet_v3_small,
    )
    from .efficientnet import (
        EfficientNet as EfficientNet,
        efficientnet_b0 as efficientnet_b0,
        efficientnet_b1 as efficientnet_b1,
        efficientnet_b2 as efficientnet_b2,
        efficientnet_b3 as efficientnet_b3,
        efficientnet_b4 as efficientnet_b4,
        efficientnet_b5 as efficientnet_b5,
        efficientnet_b6 as efficientnet_b6,
        efficientnet_b7 as efficientnet_b7,
    )
    from .convnext import (
        ConvNeXt as ConvNeXt,
        convnext_base as convnext_base,
        convnext_large as convnext_large,
        convnext_small as convnext_small,
        convnext_tiny as convnext_tiny,
    )
    from .vision_transformer import (
        VisionTransformer as VisionTransformer,
        vit_b_16 as vit_b_16,
        vit_b_32 as vit_b_32,
        vit_l_16 as vit_l_16,
        vit_l_32 as vit_l_32,
    )
    from .unet import UNet as UNet
    from .mlp import MLP as MLP
    from .gpt2 import GPT2Config as GPT2Config, GPT2LMHeadModel as GPT2LMHeadModel, GPT2Model as GPT2Model
    from .bert import BertConfig as BertConfig, BertModel as BertModel, mean_pooling as mean_pooling
    from .lstm_language_model import LSTMLanguageModel as LSTMLanguageModel
    from .folder import from_folder as from_folder
del TYPE_CHECKING

_PLACES = {
    "resnet": "ResNet BasicBlock Bottleneck resnet18 resnet34 resnet50 resnet101 resnet152",
    "mobilenet": "MobileNetV2 MobileNetV3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large",
    "efficientnet": "EfficientNet " + " ".join(f"efficientnet_b{i}" for i in range(8)),
    "convnext": "ConvNeXt convnext_tiny convnext_small convnext_base convnext_large",
    "vision_transformer": "VisionTransformer vit_b_16 vit_b_32 vit_l_16 vit_l_32",
    "unet": "UNet",
    "mlp": "MLP",
    "gpt2": "GPT2Config GPT2Model GPT2LMHeadModel",
    "bert": "BertConfig BertModel mean_pooling",
    "lstm_language_model": "LSTMLanguageModel",
    "folder": "from_folder",
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}
__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        from .._misspelt import missing

        raise missing(__name__, name)
    value = getattr(import_module("." + _MODULE_OF[name], __name__), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
