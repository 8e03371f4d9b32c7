"""Which settings a training step can be made with."""

from .errors import SettingsError
from .numeric import is_endless, is_number, is_positive, is_share, is_whole


def step_settings(
    batch_size,
    precision,
    buffer_mib,
    dropout,
    input_dropout,
    word_dropout=0.0,
    clip=None,
    label_smoothing=0.0,
    output_dropout=0.0,
    hashed_lr=None,
    hashed_dropout=None,
):
    """Refuse settings that no step can be made with; raises SettingsError."""
    shares = {"dropout": dropout, "input_dropout": input_dropout, "word_dropout": word_dropout}
    shares |= {"label_smoothing": label_smoothing, "output_dropout": output_dropout}
    shares["hashed_dropout"] = 0.0 if hashed_dropout is None else hashed_dropout
    for name, share in shares.items():
        if not is_share(share):
            raise SettingsError(f"{name} is {share!r}; expected a share in [0, 1)")
    if clip is not None and not (is_positive(clip) or is_endless(clip)):
        raise SettingsError(f"clip is {clip!r}; expected a norm above 0")
    if hashed_lr is not None and not is_positive(hashed_lr):
        raise SettingsError(f"hashed_lr is {hashed_lr!r}; expected a positive number")
    if precision not in ("float32", "bf16"):
        raise SettingsError(f"precision is {precision!r}; expected float32 or bf16")
    if not is_whole(batch_size):
        raise SettingsError(f"batch_size is {batch_size!r}; expected at least 1 example")
    if not (is_number(buffer_mib, 0) or is_endless(buffer_mib)):
        raise SettingsError(f"buffer_mib is {buffer_mib!r}; expected at least 0")
