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
