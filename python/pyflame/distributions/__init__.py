"""Probability distributions: draws (with gradients where has_rsample), densities, entropies, divergences. Names and numbers are PyTorch's."""
from .. import _paths, _refused
from . import constraints as constraints, kl as kl, transforms as transforms, utils as utils
from .constraint_registry import biject_to as biject_to, transform_to as transform_to
from .continuous import (
    Cauchy as Cauchy,
    Exponential as Exponential,
    GeneralizedPareto as GeneralizedPareto,
    Gumbel as Gumbel,
    HalfCauchy as HalfCauchy,
    HalfNormal as HalfNormal,
    Laplace as Laplace,
    Normal as Normal,
    Uniform as Uniform,
    VonMises as VonMises,
)
from .discrete import (
    Bernoulli as Bernoulli,
    Binomial as Binomial,
    Categorical as Categorical,
    Geometric as Geometric,
    Multinomial as Multinomial,
    NegativeBinomial as NegativeBinomial,
    OneHotCategorical as OneHotCategorical,
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
    Poisson as Poisson,
)
from .distribution import Distribution as Distribution, ExponentialFamily as ExponentialFamily
from .gammas import Beta as Beta, Chi2 as Chi2, Dirichlet as Dirichlet, FisherSnedecor as FisherSnedecor, Gamma as Gamma, StudentT as StudentT
from .kl import kl_divergence as kl_divergence, register_kl as register_kl
from .matrices import LKJCholesky as LKJCholesky, Wishart as Wishart
from .multivariate import LowRankMultivariateNormal as LowRankMultivariateNormal, MultivariateNormal as MultivariateNormal
from .relaxed import (
    ContinuousBernoulli as ContinuousBernoulli,
    RelaxedBernoulli as RelaxedBernoulli,
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from .transformed import (
    Independent as Independent,
    InverseGamma as InverseGamma,
    Kumaraswamy as Kumaraswamy,
    LogisticNormal as LogisticNormal,
    LogNormal as LogNormal,
    MixtureSameFamily as MixtureSameFamily,
    Pareto as Pareto,
    TransformedDistribution as TransformedDistribution,
    Weibull as Weibull,
)
from .transforms import (
    AbsTransform as AbsTransform,
    AffineTransform as AffineTransform,
    CatTransform as CatTransform,
    ComposeTransform as ComposeTransform,
    CorrCholeskyTransform as CorrCholeskyTransform,
    CumulativeDistributionTransform as CumulativeDistributionTransform,
    ExpTransform as ExpTransform,
    IndependentTransform as IndependentTransform,
    LowerCholeskyTransform as LowerCholeskyTransform,
    PositiveDefiniteTransform as PositiveDefiniteTransform,
    PowerTransform as PowerTransform,
    ReshapeTransform as ReshapeTransform,
    SigmoidTransform as SigmoidTransform,
    SoftmaxTransform as SoftmaxTransform,
    SoftplusTransform as SoftplusTransform,
    StackTransform as StackTransform,
    StickBreakingTransform as StickBreakingTransform,
    TanhTransform as TanhTransform,
    Transform as Transform,
    identity_transform as identity_transform,
)

globals().update(_paths.add(__name__, (
    "bernoulli", "beta", "binomial", "categorical", "cauchy", "chi2", "continuous_bernoulli", "dirichlet", "exp_family", "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric", "gumbel",
    "half_cauchy", "half_normal", "independent", "inverse_gamma", "kumaraswamy", "laplace", "lkj_cholesky", "log_normal", "logistic_normal", "lowrank_multivariate_normal",
    "mixture_same_family", "multinomial", "multivariate_normal", "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson", "relaxed_bernoulli", "relaxed_categorical",
    "studentT", "transformed_distribution", "uniform", "von_mises", "weibull", "wishart"), _paths.names_of(__name__)))  # fmt: skip
_refused.unknown(globals())
