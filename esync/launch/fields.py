"""Types of a description's values: names, devices, quantities with units, words for ssh."""

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from ..runtime.environment import PLACES_VARIABLE
from ..runtime.errors import suggestion
from ..runtime.progress import VARIABLE as PROGRESS_VARIABLE
from ..runtime.worker_environment import DEVICE, FOLDER_VARIABLE, HOST_GROUP_VARIABLE, PER_HOST_VARIABLE
from .folders import PROCESSES
from .yaml_text import shown

#: A host's name, which is also the name of its folder in the log tree.
HOST_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
QUANTITY = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?) *([A-Za-z]+)")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Variables that a host's section `env` may not set.
SET_BY_LAUNCH = {
    "DMLC_ROLE",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_NUM_SERVER",
    "DMLC_NUM_WORKER",
    "PORT",
    PLACES_VARIABLE,
    PROGRESS_VARIABLE,
    FOLDER_VARIABLE,
    PER_HOST_VARIABLE,
    HOST_GROUP_VARIABLE,
}
#: Unit → bits per second.
BANDWIDTHS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9}
#: Unit → seconds.
LATENCIES = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def error(reason: str, key: object = None) -> PydanticCustomError:
    """Return the error for an invalid section.

    `key` is the key of the invalid value, or a tuple of keys for a nested one; None means the
    section as a whole.
    """
    return PydanticCustomError("description", "{reason}", {"reason": reason, "key": key})


def unknown(key: object, valid_keys: Mapping[str, Any]) -> PydanticCustomError:
    """Return the error for a key that the section does not have."""
    return error(f"unknown key; known: {', '.join(valid_keys)}{suggestion(key, valid_keys)}", key)


def _host(name: str) -> str:
    if not HOST_NAME.fullmatch(name):
        raise error(f"{shown(name)} is not a host name")
    if name == PROCESSES:
        raise error(f"{shown(name)} is the folder of the processes' logs; choose another name")
    return name


def _device(name: str) -> str:
    if not DEVICE.fullmatch(name):
        raise error(f"{shown(name)} is not a device; expected cpu, gpu0, gpu1, …")
    return name


def quantity(units: Mapping[str, float], example: str, positive: bool = False) -> BeforeValidator:
    """Return a validator that turns text such as "20Mbit" into a number of the basic unit.

    Args:
        units: each unit's size in the basic unit.
        example: a correct value, for the error message.
        positive: whether to refuse 0, which might be taken for "unlimited".
    """

    def read(text: object) -> float:
        match = QUANTITY.fullmatch(text) if isinstance(text, str) else None
        if not match or match[2] not in units:
            names = ", ".join(units)
            raise error(f"{shown(text)}: expected a number with one of the units {names}, for instance {example}")
        value = float(match[1]) * units[match[2]]
        if positive and not value:
            raise error(
                f"{shown(text)}: expected more than 0, for instance {example}; leave it out where nothing limits it"
            )
        if value == math.inf:
            raise error(f"{shown(text)}: the number is too large; leave it out where nothing limits it")
        return value

    return BeforeValidator(read)


def _word(text: str) -> str:
    """Refuse words that ssh would parse as an option, and empty or unprintable ones."""
    if not text or text.startswith("-") or not text.isprintable():
        raise error(f"{shown(text)} cannot be passed to ssh")
    return text


def _key_file(text: str) -> str:
    """Refuse file names in which ssh would expand a variable or a token."""
    if "${" in text or "%" in text:
        raise error(f"{shown(text)} holds ${{ or %, which ssh would expand; write the value, or rename the file")
    return text


def _variables(section: object) -> dict[str, str]:
    """Check environment variables, and turn numbers into text."""
    if not isinstance(section, dict):
        raise error("expected a mapping of environment variables")
    for name, value in section.items():
        if not isinstance(name, str) or not VARIABLE.fullmatch(name):
            raise error("it is not a name of an environment variable", name)
        if name in SET_BY_LAUNCH:
            raise error("launch sets it by itself", name)
        if isinstance(value, bool) or not isinstance(value, str | int | float) or re.search(r"[\n\0]", str(value)):
            raise error(
                f"{shown(value)}: expected a text of one line or a number (in quotes, for true and false)", name
            )
    return {name: str(value) for name, value in section.items()}


HostName = Annotated[str, AfterValidator(_host)]
Word = Annotated[str, AfterValidator(_word)]
KeyFile = Annotated[Word, AfterValidator(_key_file)]
Variables = Annotated[dict[str, str], BeforeValidator(_variables)]
Device = Annotated[str, AfterValidator(_device)]
Port = Annotated[int, Field(ge=0, le=65535)]  # 0: launch chooses a free one


class Section(BaseModel):
    """A mapping in the file, in which unknown keys are errors."""

    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _only_known(cls, content: object) -> object:
        if isinstance(content, dict):
            for key in content:
                if key not in cls.model_fields:
                    raise unknown(key, cls.model_fields)
        return content
