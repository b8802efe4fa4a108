/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of notifications: their immediates, and how many may be on their
 * way.
 *
 * Uses nothing of the kernel: tested on the host.
 */
#ifndef TOW_SEQUENCE_H
#define TOW_SEQUENCE_H

#include <linux/types.h>

/* Notifications of one session that may be on their way, in each direction. */
#define TOW_NOTIFY_WINDOW	128

/* An immediate: a slot's number, and low bits of a notification's number. */
#define TOW_IMM_BITS		12
#define TOW_IMM_NUMBERS		4096U

/**
 * tow_imm - the immediate of a notification
 * @slot: the slot's number, below TOW_SLOTS_MAX
 * @number: the notification's number in its slot, counted from 1
 *
 * Return: the immediate, in the processor's byte order.
 */
static inline u32 tow_imm(u32 slot, u64 number)
{
	return slot << TOW_IMM_BITS | (number & (TOW_IMM_NUMBERS - 1));
}

/**
 * tow_imm_slot - which slot does an immediate name?
 * @imm: the immediate
 *
 * Return: the slot's number.
 */
static inline u32 tow_imm_slot(u32 imm)
{
	return imm >> TOW_IMM_BITS;
}

/**
 * tow_imm_ahead - how far is a notification ahead of its slot's count?
 * @imm: the immediate
 * @count: notifications counted so far
 *
 * Return: 1: it is the next one; more, below half of all numbers: some before
 * it were not seen; 0: it was counted before, or is invalid.
 */
static inline u32 tow_imm_ahead(u32 imm, u64 count)
{
	u32 ahead = (imm - (u32)count) & (TOW_IMM_NUMBERS - 1);

	return ahead < TOW_IMM_NUMBERS / 2 ? ahead : 0;
}

/**
 * tow_credit_exceeded - has a peer sent more than it may?
 * @arrived: the peer's notifications in this session, wrapping around
 * @told: the count that credit was last returned for; may be ahead of @arrived
 *
 * Return: true: it has.
 */
static inline bool tow_credit_exceeded(u32 arrived, u32 told)
{
	return (int)(arrived - told) > TOW_NOTIFY_WINDOW;
}

/**
 * tow_credit_due - is it time to return credit to a peer?
 * @arrived: the peer's notifications in this session, wrapping around
 * @told: the count that credit was last returned for; may be ahead of @arrived
 *
 * Return: true: it is.
 */
static inline bool tow_credit_due(u32 arrived, u32 told)
{
	return (int)(arrived - told) >= TOW_NOTIFY_WINDOW / 2;
}

/**
 * tow_credit_gain - how much credit does a peer return?
 * @said: notifications that the peer says it has handled, wrapping around
 * @before: the same, as of its message before
 * @outstanding: notifications that the peer has not returned credit for
 *
 * Return: how many more may be sent; -1: the message is not valid.
 */
static inline int tow_credit_gain(u32 said, u32 before, u32 outstanding)
{
	u32 gain = said - before;

	return gain && gain <= outstanding ? (int)gain : -1;
}

#endif /* TOW_SEQUENCE_H */
