/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The variables of the models that "Fast Distributed Deep Learning over RDMA" (EuroSys '19) trains,
 * by the number of their elements, float32.
 *
 * The paper's Table 2 says how large each model is, and how many variables it has.  What their
 * shapes are is known of each architecture; with ten classes, and Inception-v3 with its second
 * head and batch normalisation without a scale (as TensorFlow's slim has it), sums and counts are
 * just those of the table: model_check().
 */
#ifndef TOW_MODELS_H
#define TOW_MODELS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_TENSORS_MAX	200U

struct model {
	uint32_t count;
	uint64_t elements[MODEL_TENSORS_MAX];
};

static inline void model_add(struct model *model, uint64_t elements)
{
	model->elements[model->count++] = elements;
}

/* Weights, and one more for each output: a bias, or the shift of a batch normalisation. */
static inline void model_layer(struct model *model, uint64_t inputs, uint64_t outputs)
{
	model_add(model, inputs * outputs);
	model_add(model, outputs);
}

/* Layers with a kernel of that many places each, from @table to a 0. */
static inline void model_layers(struct model *model, const uint32_t (*table)[3])
{
	for (; (*table)[0]; table++)
		model_layer(model, (uint64_t)(*table)[0] * (*table)[1], (*table)[2]);
}

static inline void model_alexnet(struct model *model)
{
	static const uint32_t layers[][3] = {
		{ 121, 3, 64 }, { 25, 64, 192 }, { 9, 192, 384 }, { 9, 384, 384 }, { 9, 384, 256 },
		{ 25, 256, 4096 }, { 1, 4096, 4096 }, { 1, 4096, 10 }, { 0 },
	};

	model_layers(model, layers);
}

static inline void model_vgg16(struct model *model)
{
	static const uint32_t layers[][3] = {
		{ 9, 3, 64 }, { 9, 64, 64 }, { 9, 64, 128 }, { 9, 128, 128 }, { 9, 128, 256 },
		{ 9, 256, 256 }, { 9, 256, 256 }, { 9, 256, 512 }, { 9, 512, 512 }, { 9, 512, 512 },
		{ 9, 512, 512 }, { 9, 512, 512 }, { 9, 512, 512 }, { 49, 512, 4096 },
		{ 1, 4096, 4096 }, { 1, 4096, 10 }, { 0 },
	};

	model_layers(model, layers);
}

static inline void model_fcn5(struct model *model)
{
	static const uint32_t layers[][3] = {
		{ 1, 784, 4096 }, { 1, 4096, 4096 }, { 1, 4096, 4096 }, { 1, 4096, 4096 },
		{ 1, 4096, 10 }, { 0 },
	};

	model_layers(model, layers);
}

/* A cell of 1,024 units with that many gates, and 1,000 outputs: gates have two inputs. */
static inline void model_cell(struct model *model, uint32_t gates)
{
	uint32_t i;

	for (i = 0; i < gates; i++) {
		model_add(model, 1024ULL * 1024);
		model_layer(model, 1024, 1024);
	}
	model_layer(model, 1024, 1000);
}

/* Mixed 5b to 5d: @in channels, of which @pooled come from pooling. */
static inline void model_inception_5(struct model *model, uint32_t in, uint32_t pooled)
{
	const uint32_t layers[][3] = {
		{ 1, in, 64 }, { 1, in, 48 }, { 25, 48, 64 }, { 1, in, 64 }, { 9, 64, 96 },
		{ 9, 96, 96 }, { 1, in, pooled }, { 0 },
	};

	model_layers(model, layers);
}

/* Mixed 6b to 6e. */
static inline void model_inception_6(struct model *model, uint32_t mid)
{
	const uint32_t layers[][3] = {
		{ 1, 768, 192 }, { 1, 768, mid }, { 7, mid, mid }, { 7, mid, 192 }, { 1, 768, mid },
		{ 7, mid, mid }, { 7, mid, mid }, { 7, mid, mid }, { 7, mid, 192 }, { 1, 768, 192 },
		{ 0 },
	};

	model_layers(model, layers);
}

/* Mixed 7b and 7c. */
static inline void model_inception_7(struct model *model, uint32_t in)
{
	const uint32_t layers[][3] = {
		{ 1, in, 320 }, { 1, in, 384 }, { 3, 384, 384 }, { 3, 384, 384 }, { 1, in, 448 },
		{ 9, 448, 384 }, { 3, 384, 384 }, { 3, 384, 384 }, { 1, in, 192 }, { 0 },
	};

	model_layers(model, layers);
}

static inline void model_inception(struct model *model)
{
	static const uint32_t stem[][3] = {
		{ 9, 3, 32 }, { 9, 32, 32 }, { 9, 32, 64 }, { 1, 64, 80 }, { 9, 80, 192 }, { 0 },
	};
	static const uint32_t mixed_6a[][3] = {
		{ 9, 288, 384 }, { 1, 288, 64 }, { 9, 64, 96 }, { 9, 96, 96 }, { 0 },
	};
	static const uint32_t mixed_7a[][3] = {
		{ 1, 768, 192 }, { 9, 192, 320 }, { 1, 768, 192 }, { 7, 192, 192 }, { 7, 192, 192 },
		{ 9, 192, 192 }, { 0 },
	};
	static const uint32_t heads[][3] = {
		{ 1, 2048, 10 }, { 1, 768, 128 }, { 25, 128, 768 }, { 1, 768, 10 }, { 0 },
	};

	model_layers(model, stem);
	model_inception_5(model, 192, 32);
	model_inception_5(model, 256, 64);
	model_inception_5(model, 288, 64);
	model_layers(model, mixed_6a);
	model_inception_6(model, 128);
	model_inception_6(model, 160);
	model_inception_6(model, 160);
	model_inception_6(model, 192);
	model_layers(model, mixed_7a);
	model_inception_7(model, 1280);
	model_inception_7(model, 2048);
	model_layers(model, heads);
}

/* What the table says, in 1/100 of a MiB. */
static inline void model_check(const struct model *model, uint32_t count, uint32_t size)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < model->count; i++)
		sum += model->elements[i];
	if (model->count != count || (sum * 4 * 100 + (1 << 19)) >> 20 != size)
		abort();
}

/* A model by its name, all its tensors smaller by @divide; its count is 0: there is none such. */
static inline struct model model_make(const char *name, uint64_t divide)
{
	struct model model;
	uint32_t i;

	memset(&model, 0, sizeof(model));
	if (!strcmp(name, "alexnet")) {
		model_alexnet(&model);
		model_check(&model, 16, 17642);
	} else if (!strcmp(name, "inception")) {
		model_inception(&model);
		model_check(&model, 196, 9290);
	} else if (!strcmp(name, "vgg16")) {
		model_vgg16(&model);
		model_check(&model, 32, 51232);
	} else if (!strcmp(name, "lstm")) {
		model_cell(&model, 4);
		model_check(&model, 14, 3593);
	} else if (!strcmp(name, "gru")) {
		model_cell(&model, 3);
		model_check(&model, 11, 2792);
	} else if (!strcmp(name, "fcn5")) {
		model_fcn5(&model);
		model_check(&model, 10, 20447);
	}
	for (i = 0; i < model.count; i++)
		model.elements[i] = (model.elements[i] + divide - 1) / divide;
	return model;
}

#endif /* TOW_MODELS_H */
