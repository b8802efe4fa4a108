/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The numbers of notifications: what an immediate says, and how many may be on
 * their way.
 *
 * No kernel in it: tested on the host.
 */
#ifndef TOW_SEQUENCE_H
#define TOW_SEQUENCE_H

#include <linux/types.h>

/* Notifications of one session that may be on their way, in each direction. */
#define TOW_NOTIFY_WINDOW	128

/* An immediate: a slot's number, and the low bits of the notification's. */
#define TOW_IMM_BITS		12
#define TOW_IMM_NUMBERS		4096U

/**
 * tow_imm - what goes with a notification
 * @slot: the slot's number, below TOW_SLOTS_MAX
 * @number: of the notification in its slot, counted from 1
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
 * Return: 1 for the one that is due; more, up to half of all numbers, if some were
 * not seen; 0: it was counted before, or makes no sense.
 */
static inline u32 tow_imm_ahead(u32 imm, u64 count)
{
	u32 ahead = (imm - (u32)count) & (TOW_IMM_NUMBERS - 1);

	return ahead < TOW_IMM_NUMBERS / 2 ? ahead : 0;
}

/**
 * tow_credit_exceeded - has a peer sent more than it may?
 * @arrived: its notifications in this session, wrapping around
 * @told: those that it was told are dealt with
 * @window: how many others there may be
 *
 * Return: whether it has.
 */
static inline bool tow_credit_exceeded(u32 arrived, u32 told, u32 window)
{
	return arrived - told > window;
}

/**
 * tow_credit_due - is it time to tell a peer what was dealt with?
 * @arrived: its notifications in this session, wrapping around
 * @told: those that it was told are dealt with
 *
 * Return: whether it is.
 */
static inline bool tow_credit_due(u32 arrived, u32 told)
{
	return arrived - told >= TOW_NOTIFY_WINDOW / 2;
}

/**
 * tow_credit_gain - what may a peer's word of what it dealt with be worth?
 * @said: what it says, wrapping around
 * @before: what it has said before
 * @outstanding: notifications that it has not said to have dealt with
 *
 * Return: how many more may be sent; negative: it must not say that.
 */
static inline int tow_credit_gain(u32 said, u32 before, u32 outstanding)
{
	u32 gain = said - before;

	return gain && gain <= outstanding ? (int)gain : -1;
}

#endif /* TOW_SEQUENCE_H */
