# SPDX-License-Identifier: GPL-2.0
"""C in Documentation/tutorial.md compiles; Python in documents is some that is run.

What is to be typed there tests/lab/edges and tests/lab/mpirun run.
"""

import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted((TOP / "libshim/include/towline").glob("*.h"))


def blocks(document, language):
    """What is printed there in that language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (TOP / document).read_text(encoding="utf-8"),
                      re.MULTILINE | re.DOTALL)


COMMON = """
#define WAIT_MS 10000
struct tow_device *dev;
struct tow_peer *peer;
struct tow_region *region;
struct tow_queue *queue;
struct tow_arena *arena;
struct tow_worker *worker;
struct tow_group *group;
struct tow_comm *comm;
struct tow_ps *ps;
struct tow_feed *feed;
uint32_t blamed;
uint64_t step;
size_t bytes;
const char *address, *name;
"""
# What each block leaves open, with what is said of it there.
OPEN = {
    "/* node1 */": "struct tow_slot *slot; struct tow_exported *exported; struct tow_channel *channel;"
                   "struct tow_remote *there, *told; const struct tow_cqe *cqe; void *memory;"
                   "void fill(void *memory);",
    "tow_device_open": "",
    "tow_static_receiver": "struct tow_tensor_type type; struct tow_edge *edge; void *tensor; int error;"
                           "tow_edge_done sent;",
    "tow_tracer_step_begin": "struct tow_tracer *tracer; void *tensor; uint32_t node;",
    "tow_world_detect": "struct tow_world world; struct tow_dtype type;",
    "attr.kind": "struct tow_collective_attr attr; struct tow_collective *average; float *gradient;"
                 "void compute_gradient(float *gradient);",
    "tow_store_create": "struct tow_store_attr optimizer; struct tow_tensor_type *types; uint32_t count;"
                        "const void *const *initial; struct tow_store *store; struct tow_ps_attr attr;",
    "for (v": "uint32_t v, variables; void **gradient;",
    "tow_feed_create": "struct tow_feed_attr attr; tow_feed_fill fill; void *data;",
    "while (tow_feed_next": "void *const *tensors; void compute(const void *x, const void *y);",
}


def compiles(body, given, tmp_path):
    """What the compiler says of a function with that in it."""
    source = tmp_path / "block.c"
    source.write_text("".join(f"#include <towline/{path.name}>\n" for path in HEADERS) +
                      f"#include <sys/mman.h>\n{COMMON}{given}\nvoid block(void);\nvoid block(void)\n"
                      f"{{\n{body}}}\n", encoding="utf-8")
    done = subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                           f"-I{TOP}/build/include", source], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("number", range(len(OPEN)))
def test_tutorial_c(number, tmp_path):
    """Each block is of calls as they are."""
    begins, given = list(OPEN.items())[number]
    body = blocks("Documentation/tutorial.md", "c")[number]
    assert body.startswith(begins)
    assert compiles(body, given, tmp_path) == ""


def test_every_block():
    """There is none that nobody looks at."""
    assert len(blocks("Documentation/tutorial.md", "c")) == len(OPEN)
    assert not blocks("README.md", "c") and not blocks("python/README.md", "c")
    assert not blocks("Documentation/tutorial.md", "python")
    # tests/torch/two-nodes runs it, test_readme.py those of python/README.md.
    example = (TOP / "Documentation/examples/torch/ddp.py").read_text(encoding="utf-8")
    assert blocks("README.md", "python") == [example.split("\n", 1)[1]]


def test_looks(tmp_path):
    """What is wrong is found."""
    assert "too few arguments" in compiles("tow_export(region);\n", "", tmp_path)
