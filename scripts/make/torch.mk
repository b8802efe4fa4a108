# SPDX-License-Identifier: GPL-2.0
#
# PyTorch's backend and allocator: built where libtorch-dev and pybind11-dev are installed.

#help torch          PyTorch's backend, in build/torch (scripts/setup --torch)

CXXFLAGS	?= -O2 -g
torch_module	:= $(OUT)/torch/_backend.so
# For another PyTorch than the system's: where its headers and libraries are.
TORCH_CFLAGS	?= -isystem /usr/include/torch/csrc/api/include $(shell $(PYTHON)-config --includes)
TORCH_LIBS	?= -ltorch_python -ltorch_cpu -lc10

torch: $(torch_module)

$(torch_module): python/towline/torch/backend.cc $(flags) $(lib_shared) | $(public_headers)
	@mkdir -p $(@D)
	$(call say,CXX)$(CXX) -std=c++17 -fPIC -shared -fvisibility=hidden -Wall -Wextra $(WERROR) \
		-ffile-prefix-map=$(top)=. -I$(OUT)/include $(TORCH_CFLAGS) $(CPPFLAGS) $(CXXFLAGS) \
		$(deps) $(LDFLAGS) -o $@ $< -L$(OUT)/lib -ltowline $(RPATH) $(TORCH_LIBS)

# The same for Debian 13's: with its compiler, in a system of its own (1.6 GB).
torch-2: $(OUT)/torch-2/_backend.so

$(OUT)/torch-2/_backend.so: python/towline/torch/backend.cc tests/torch/trixie $(lib_shared) | $(public_headers)
	$(call say,CXX)tests/torch/trixie make

-include $(torch_module).d

.PHONY: torch torch-2
