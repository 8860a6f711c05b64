"""BERTAdam: Adam without bias correction, as BERT was trained, at the speed of torch's fused AdamW."""

from __future__ import annotations

import torch

# In float32 2**24 + 1 == 2**24, and 0.999**(2**24) == 0: a parameter whose counter starts here has both bias
# corrections exactly 1 forever, in the for-loop, foreach and fused kernels alike.
_SATURATED_STEP = 2.0**24


class BertAdam(torch.optim.AdamW):
    """AdamW without bias correction.

    `m = beta1 m + (1 - beta1) g`, `v = beta2 v + (1 - beta2) g²`,
    `p = p - lr (m / (sqrt(v) + eps) + weight_decay p)`.

    The first updates are larger than those of debiased Adam, by `(1 - beta1^t) / sqrt(1 - beta2^t)`: 3.16 at
    t = 1, 6.57 at t = 12, 1.26 at t = 1000. Zhang et al. find that this makes fine-tuning on few samples
    unstable; it is here to compare, and to repeat results obtained with it.

    Args:
        params: Parameters or groups, as for `torch.optim.AdamW`.
        lr (`float`, *optional*, defaults to 1e-3): Learning rate.
        betas (`tuple[float, float]`, *optional*, defaults to (0.9, 0.999)): Decay of the two moments.
        eps (`float`, *optional*, defaults to 1e-6): Added to `sqrt(v)`, outside the root.
        weight_decay (`float`, *optional*, defaults to 0.01): Decoupled decay.
        max_norm_per_tensor (`float`, *optional*): Clip the gradient of each parameter tensor to this norm, as
            the PyTorch BERTAdam of Sun et al. does (Google's clips the norm over all parameters, as Trainer's
            `max_grad_norm` does).
        fused, foreach: As for `torch.optim.AdamW`.

    Paper: Devlin et al. 2018, appendix A.2 (authors' `AdamWeightDecayOptimizer`); Zhang et al. 2021, section 4.
    """

    def __init__(
        self,
        params,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        max_norm_per_tensor: float | None = None,
        fused: bool | None = None,
        foreach: bool | None = None,
    ):
        if max_norm_per_tensor is not None and max_norm_per_tensor <= 0:
            raise ValueError(f"max_norm_per_tensor is {max_norm_per_tensor}: give a positive norm.")
        super().__init__(params, lr, betas, eps, weight_decay, fused=fused, foreach=foreach)
        self.max_norm_per_tensor = max_norm_per_tensor
        if max_norm_per_tensor is not None:
            # fp16: gradients must be unscaled before they are clipped, so not inside the fused kernel
            self._step_supports_amp_scaling = False

    def _init_group(self, group, params_with_grad, *args):
        # private in torch, the only place where a parameter's counter is made; test_bert_adam.py pins it
        for param in group["params"]:
            if param.grad is not None and not self.state[param]:
                new = {"exp_avg": torch.zeros_like(param, memory_format=torch.preserve_format)}
                new["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
                device = param.device if group["fused"] or group["capturable"] else "cpu"
                new["step"] = torch.tensor(_SATURATED_STEP, dtype=torch.float32, device=device)
                self.state[param].update(new)
        return super()._init_group(group, params_with_grad, *args)

    @torch.no_grad()
    def step(self, closure=None):
        """One update; clips each gradient first where `max_norm_per_tensor` is given."""
        if self.max_norm_per_tensor is not None:
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        torch.nn.utils.clip_grad_norm_(param, self.max_norm_per_tensor)
        return super().step(closure)
