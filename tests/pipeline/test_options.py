"""The options of a build: one declaration each, and an error where one has no effect."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

import uma
from uma.cli import _parsers
from uma.cli.shared_options import add_model_arguments
from uma.errors import UsageError
from uma.option_values import Allowed, Limit, StripsAsked
from uma.options import BuildKeywords, BuildOptions, flags
from uma.support.project_file import SETTINGS

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "build": uma.build,
    "verify": uma.verify,
    "explain": uma.explain,
    "report": uma.report,
    "plan": uma.plan,
    "quantize": uma.quantize,
}


def test_the_keywords_are_the_fields() -> None:
    assert list(BuildKeywords.__annotations__) == [field.name for field in dataclasses.fields(BuildOptions)]


@pytest.mark.parametrize("command", FUNCTIONS)
def test_no_signature_repeats_an_option(command: str) -> None:
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    assert "options" in parameters and not {field.name for field in dataclasses.fields(BuildOptions)} & {*parameters}


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"uma\.build has no option 'shape'") as error:
        uma.build("m.onnx", "c", shape={"x": (1,)})  # type: ignore[call-overload]  # what is tested
    assert "did you mean 'shapes'" in str(error.value.hint)


@pytest.mark.parametrize(
    ("command", "option", "where"),
    [
        ("verify", {"weights": "array"}, "it has one in uma.build"),
        ("explain", {"dump": "d"}, "it has one in uma.build"),
        ("report", {"weights": "file"}, "it has one in uma.build"),
        ("quantize", {"max_ram": "64K"}, "it has one in uma.build and uma.verify and uma.explain and uma.report"),
        ("plan", {"max_ram": "64K"}, "it has one in uma.build and uma.verify and uma.explain and uma.report"),
    ],
)
def test_an_option_without_effect_is_refused(command: str, option: dict[str, str], where: str) -> None:
    with pytest.raises(UsageError, match=f"{next(iter(option))} has no effect in uma.{command}") as error:
        FUNCTIONS[command]("m.onnx", "c", *(["data.npz"] if command == "quantize" else []), **option)
    assert error.value.hint == where


def test_values_have_one_form() -> None:
    options = BuildOptions.read("build", {"max_ram": "64K", "strips": "2:conv", "stream_inputs": ["x", "x"]})
    assert options.max_ram == Limit(65536, "max_ram") and options.strips == StripsAsked(2, "conv")
    assert options.stream_inputs == ("x",)
    assert dataclasses.replace(options, name="m").max_ram == options.max_ram
    with pytest.raises(UsageError, match="'tape' is not a form of weights"):
        BuildOptions.read("build", {"weights": "tape"})  # type: ignore[typeddict-item]  # what is tested


def test_changed_names_what_differs_from_the_defaults() -> None:
    assert list(BuildOptions().changed) == []
    assert list(BuildOptions(allow=Allowed({"hybrid": "float"}), shapes={}, max_ram=Limit(0, "max_ram")).changed) == [
        "allow",
        "max_ram",
    ]


def test_every_flag_is_in_the_group_that_its_option_declares() -> None:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser, "build")
    groups = {action.dest: group.title for group in parser._action_groups for action in group._group_actions}
    for _, argument, flag in flags():
        assert str(groups[argument]).startswith(flag.group)


def test_every_option_of_a_project_is_a_setting() -> None:
    in_project = {field.name for field in dataclasses.fields(BuildOptions) if field.metadata["in_project"]}
    assert in_project and in_project < {*SETTINGS}


def test_options_of_a_saved_model_are_read_as_they_were_written() -> None:
    given: BuildKeywords = {
        "allow": {"rounding:conv": "fixed-point", "hybrid": "litert"},
        "io": "arena",
        "strips": "2:conv",
        "stream_inputs": ["x"],
        "max_ram": "64K",
        "weights": "array",
    }
    options = BuildOptions.read("build", {**given, "name": "m", "import_limit": 7})
    record = json.loads(json.dumps(options.to_json()))
    assert record == {**given, "max_ram": 65536}
    again = BuildOptions.from_json(record)
    assert {*again.changed} == {*given} and all(getattr(again, name) == getattr(options, name) for name in given)
    assert BuildOptions().to_json() == {}


def test_help_of_uma_build_has_every_flag_in_a_group() -> None:
    parser = next(parser for parser in _parsers() if parser.prog == "uma build")
    groups = {group.title: {action.dest for action in group._group_actions} for group in parser._action_groups}
    assert list(groups)[2:] == ["target and model", "memory and limits", "placement", "numerics", "output"]
    assert groups["options"] == {"help", "json", "quiet", "verbose"}
    assert groups["positional arguments"] == {"model"}
    assert {"max_ram", "max_rom"} < groups["memory and limits"] and "stop_after" in groups["output"]
