// SPDX-License-Identifier: GPL-2.0
/* How large tensors are: all of DLPack's types, empty ones, and what is none. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include <kselftest.h>
#include <towline/tensor.h>

static struct tow_tensor_type made(uint8_t code, uint8_t bits, uint16_t lanes, uint32_t ndim, ...)
{
	struct tow_tensor_type type = { { code, bits, lanes }, ndim, { 0 } };
	va_list dims;

	va_start(dims, ndim);
	for (uint32_t i = 0; i < ndim && i < TOW_DIMS_MAX; i++)
		type.dims[i] = va_arg(dims, int64_t);
	va_end(dims);
	return type;
}

static bool is(struct tow_tensor_type type, uint64_t bytes)
{
	uint64_t answer = 12345;

	return !tow_tensor_bytes(&type, &answer) && answer == bytes;
}

static bool fails(struct tow_tensor_type type, int error)
{
	uint64_t answer = 12345;

	return tow_tensor_bytes(&type, &answer) == error && answer == 12345;
}

#define N(number) ((int64_t)(number))

int main(void)
{
	struct tow_tensor_type scalar = made(TOW_DTYPE_FLOAT, 32, 1, 0);
	uint64_t bytes;

	ksft_print_header();
	ksft_set_plan(8);
	ksft_test_result(is(scalar, 4) && is(made(TOW_DTYPE_COMPLEX, 128, 1, 0), 16) &&
			 is(made(TOW_DTYPE_BOOL, 8, 1, 0), 1), "one element\n");
	ksft_test_result(is(made(TOW_DTYPE_BFLOAT, 16, 1, 3, N(2), N(3), N(5)), 60) &&
			 is(made(TOW_DTYPE_INT, 64, 1, 8, N(1), N(2), N(1), N(2), N(1), N(2), N(1),
				 N(2)), 128), "dimensions\n");
	ksft_test_result(is(made(TOW_DTYPE_FLOAT, 32, 4, 1, N(10)), 160), "lanes\n");
	ksft_test_result(is(made(TOW_DTYPE_FLOAT4_E2M1FN, 4, 1, 1, N(7)), 4) &&
			 is(made(TOW_DTYPE_FLOAT4_E2M1FN, 4, 1, 1, N(8)), 4) &&
			 is(made(TOW_DTYPE_FLOAT6_E2M3FN, 6, 1, 1, N(9)), 7) &&
			 is(made(TOW_DTYPE_UINT, 1, 1, 1, N(17)), 3),
			 "elements of less than a byte\n");
	ksft_test_result(is(made(TOW_DTYPE_INT, 8, 1, 2, N(0), N(5)), 0) &&
			 is(made(TOW_DTYPE_INT, 8, 1, 3, INT64_MAX, INT64_MAX, N(0)), 0),
			 "nothing\n");
	ksft_test_result(is(made(TOW_DTYPE_INT, 8, 1, 1, N(1) << 62), (uint64_t)1 << 62) &&
			 fails(made(TOW_DTYPE_INT, 8, 1, 1, (N(1) << 62) + 1), -EOVERFLOW) &&
			 fails(made(TOW_DTYPE_INT, 64, 1, 1, N(1) << 60), -EOVERFLOW) &&
			 fails(made(TOW_DTYPE_INT, 8, 1, 3, N(1) << 32, N(1) << 32, N(2)),
			       -EOVERFLOW) &&
			 fails(made(TOW_DTYPE_INT, 255, 65535, 1, N(1) << 60), -EOVERFLOW),
			 "too large\n");
	ksft_test_result(fails(made(TOW_DTYPE_INT, 8, 1, 1, N(-1)), -EINVAL) &&
			 fails(made(TOW_DTYPE_INT, 0, 1, 0), -EINVAL) &&
			 fails(made(TOW_DTYPE_INT, 8, 0, 0), -EINVAL) &&
			 fails(made(TOW_DTYPE_INT, 8, 1, 9), -EINVAL), "no tensors\n");
	ksft_test_result(tow_tensor_bytes(NULL, &bytes) == -EINVAL &&
			 tow_tensor_bytes(&scalar, NULL) == -EINVAL, "nothing to ask, or to answer\n");
	ksft_finished();
}
