"""Generates tpu/emulator/internal/masterpb, the messages of TensorFlow's master service, in Go.

Usage: python tools/gen_master.py    (from the root of the checkout, after make setup)

TensorFlow's wheel has no .proto files, but its library embeds the descriptor of each. The script
takes that of master.proto out of the library and runs protoc-gen-go on it, so no protoc is needed.
What the file imports is mapped to the messages of the Go binding.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message
from google.protobuf.compiler import plugin_pb2
from google.protobuf.internal import decoder

# Registers the descriptors of all that master.proto imports.
from tensorflow.core.protobuf import config_pb2, named_tensor_pb2  # noqa: F401

PROTO = "tensorflow/core/protobuf/master.proto"
FOLDER = pathlib.Path("tpu/emulator/internal/masterpb")
PACKAGE = f"github.com/gorbit-ml/gorbit/{FOLDER}"
GENERATOR = "google.golang.org/protobuf/cmd/protoc-gen-go"
BINDING = "github.com/wamuir/graft/tensorflow/"
FOLDERS = {
    "github.com/tensorflow/tensorflow/tensorflow/go/core": BINDING + "core",
    "github.com/google/tsl/tsl/go/protobuf": BINDING + "tsl/protobuf",
}


def embedded(library: bytes, name: str) -> descriptor_pb2.FileDescriptorProto:
    """Returns the descriptor of a .proto file that a library embeds, with messages in it."""
    file = descriptor_pb2.FileDescriptorProto
    head = file(name=name).SerializeToString()
    start = library.find(head)
    while start >= 0:
        found = file()
        try:
            found.ParseFromString(library[start : end_of(library, start)])
        except message.DecodeError:
            found = file()
        if found.message_type:
            return found
        start = library.find(head, start + 1)
    raise SystemExit(f"TensorFlow's library does not embed {name}; expected TensorFlow 2.18")


def end_of(data: bytes, start: int) -> int:
    """Returns where a descriptor ends: before the first byte that begins none of its fields."""
    fields = {f.number for f in descriptor_pb2.FileDescriptorProto.DESCRIPTOR.fields}
    at = start
    while True:
        number, kind = data[at] >> 3, data[at] & 7
        # The name comes first, once.
        if number not in fields or (number == 1 and at > start):
            return at
        if kind == 2:
            length, content = decoder._DecodeVarint(data, at + 1)
            end = content + length
        elif kind == 0:
            _, end = decoder._DecodeVarint(data, at + 1)
        else:
            return at
        if end > len(data):
            return at
        at = end


def request(proto: descriptor_pb2.FileDescriptorProto) -> plugin_pb2.CodeGeneratorRequest:
    """Returns the request to generate one file, with all that it imports."""
    out = plugin_pb2.CodeGeneratorRequest(
        file_to_generate=[proto.name], parameter="paths=source_relative"
    )
    seen = set()

    def add(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        file = descriptor_pb2.FileDescriptorProto()
        descriptor_pool.Default().FindFileByName(name).CopyToProto(file)
        for dependency in file.dependency:
            add(dependency)
        for ours, theirs in FOLDERS.items():
            file.options.go_package = file.options.go_package.replace(ours, theirs)
        out.proto_file.append(file)

    for dependency in proto.dependency:
        add(dependency)
    proto.options.go_package = PACKAGE
    out.proto_file.append(proto)
    return out


def main() -> None:
    """Writes the package."""
    library = pathlib.Path(tf.__file__).parent / "libtensorflow_cc.so.2"
    proto = embedded(library.read_bytes(), PROTO)
    run = subprocess.run(
        ["go", "run", GENERATOR],
        input=request(proto).SerializeToString(),
        stdout=subprocess.PIPE,
        check=True,
    )
    response = plugin_pb2.CodeGeneratorResponse.FromString(run.stdout)
    if response.error:
        sys.exit(response.error)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for file in response.file:
        path = FOLDER / pathlib.Path(file.name).name
        path.write_text(file.content, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
