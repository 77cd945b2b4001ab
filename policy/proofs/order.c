/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Proofs of plimsoll/order.h, for any virtual time that a run may take: whatever
 * the weights are, and however their quotients are rounded. order_exact.c has what
 * depends on the division.
 *
 * The promise about waits follows from three facts, each proved for any state and
 * any one step, so by induction for any number of them. A waiting task's deadline
 * does not move and is not before the clock; the task that is picked has the
 * earliest deadline; a task that runs for what is left of its request does not
 * pass its own deadline. So no task passes the deadline of one that waits, and
 * from its start, at most the largest credit K before the clock, each may run for
 * (R / e) * E_j + K until then. That is of the time that tasks leave which run before their
 * turn: they move no clock.
 */
#include "proof.h"

static plim_u64 last_dividend, last_divisor, last_quotient;

/*
 * Any quotient: at least 1 if the dividend is no less than the divisor, no more
 * than the dividend, and in the order of the dividends for one divisor.
 */
static plim_u64 any_quotient(plim_u64 dividend, plim_u64 divisor)
{
	plim_u64 quotient = any_u64(0, dividend);

	ASSUME((quotient > 0) == (dividend >= divisor));
	if (divisor == last_divisor) {
		ASSUME(dividend < last_dividend || quotient >= last_quotient);
		ASSUME(dividend > last_dividend || quotient <= last_quotient);
	}
	last_dividend = dividend;
	last_divisor = divisor;
	last_quotient = quotient;
	return quotient;
}

#define PLIM_ORDER_DIVIDE(dividend, divisor) any_quotient(dividend, divisor)
#include "plimsoll/order.h"

/*
 * One that takes a step and one that stands for each of the others: no step reads more
 * than two tasks.
 */
#define TASKS 2
/* Bound of the distances within one queue. */
#define NEAR (1ULL << 60)

enum state { ASLEEP, WAITS, RUNS };

/* A queue, the tasks that it has or had, and their weights. */
struct queue {
	plim_u64 clock;
	struct plim_order tasks[TASKS];
	enum state states[TASKS];
};

static plim_u32 any_request(void)
{
	return any_u32(PLIM_ORDER_REQUEST_MIN_NS, PLIM_ORDER_REQUEST_MAX_NS);
}

/* Any task whose times are near @clock. */
static struct plim_order any_task(plim_u64 clock)
{
	struct plim_order task = {
		.start = clock + (plim_u64)any_s64(-(plim_s64)NEAR, (plim_s64)NEAR),
		.deadline = clock + (plim_u64)any_s64(-(plim_s64)NEAR, (plim_s64)NEAR),
		.credit = any_u64(0, NEAR),
		.ran_ns = nondet_u64(),
		.request_ns = any_request(),
		.nr_short_runs = any_u32(0, PLIM_ORDER_SHORT_RUNS - 1),
	};

	return task;
}

/* Invariant of each task that waits. */
static int waits_well(const struct plim_order *task, plim_u64 clock)
{
	return !plim_order_before(task->deadline, clock) &&
	       plim_order_before(task->start, task->deadline);
}

static struct queue any_queue(void)
{
	struct queue queue = { .clock = nondet_u64() };
	int i;

	for (i = 0; i < TASKS; i++) {
		queue.tasks[i] = any_task(queue.clock);
		queue.states[i] = (enum state)any_u32(ASLEEP, RUNS);
		ASSUME(queue.states[i] != WAITS || waits_well(&queue.tasks[i], queue.clock));
	}
	return queue;
}

/* The floor that a group's clock gives. */
static plim_u64 any_floor(plim_u64 clock)
{
	return clock - NEAR / 2 + any_u64(0, NEAR);
}

static plim_u32 any_part(void)
{
	return any_u32(1, PLIM_ORDER_PART_WHOLE);
}

static void pick(struct queue *queue, int i)
{
	int other;

	/* The kernel's queue is ordered by deadline. */
	for (other = 0; other < TASKS; other++)
		ASSUME(queue->states[other] != WAITS ||
		       !plim_order_before(queue->tasks[other].deadline, queue->tasks[i].deadline));
	queue->clock = plim_order_picked(queue->clock, queue->tasks[i].start);
}

/* Any one step of task @i. */
static void any_step(struct queue *queue, int i)
{
	struct plim_order *task = &queue->tasks[i];
	plim_u64 effective = any_u64(1 << 10, 1ULL << 27), floor;

	if (queue->states[i] == ASLEEP) {
		floor = any_floor(queue->clock);
		plim_order_wake(task, queue->clock, floor, nondet_u64(), effective, any_part());
		queue->states[i] = WAITS;
	} else if (queue->states[i] == WAITS) {
		/* Before its turn it moves no clock. */
		if (any_bool())
			pick(queue, i);
		else
			plim_order_forgive(task, queue->clock, effective);
		queue->states[i] = RUNS;
	} else {
		plim_order_charge(task, any_u64(0, PLIM_NSEC_PER_SEC), effective);
		if (any_bool())
			plim_order_yield(task);
		if (any_bool()) {
			plim_order_sleep(task, queue->clock, any_bool());
			queue->states[i] = ASLEEP;
		} else {
			plim_order_requeue(task, queue->clock, any_bool(), effective, any_part());
			queue->states[i] = WAITS;
		}
	}
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_no_deadline_that_waits_is_before_the_clock(void)
{
	struct queue queue = any_queue(), before = queue;
	int i;

	any_step(&queue, 0);
	for (i = 0; i < TASKS; i++)
		PROVE(queue.states[i] != WAITS || waits_well(&queue.tasks[i], queue.clock),
		      "the clock has not passed it, and its request is not served");
	PROVE(!plim_order_before(queue.clock, before.clock), "the clock goes forward");
	PROVE(queue.tasks[1].deadline == before.tasks[1].deadline,
	      "a deadline does not move while its task waits");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_task_keeps_its_debt(void)
{
	plim_u64 clock = nondet_u64(), effective = any_u64(1 << 10, 1ULL << 27);
	struct plim_order task = any_task(clock), before = task;
	plim_u64 floor = any_floor(clock);

	plim_order_wake(&task, clock, floor, any_u64(0, PLIM_ORDER_FORGET_NS - 1), effective,
			any_part());
	PROVE(!plim_order_before(task.start, before.start), "a sleep gives no service back");
	PROVE(task.credit == 0, "credit is given once");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_task_is_owed_no_more_than_the_largest_credit(void)
{
	plim_u64 clock = nondet_u64(), effective = any_u64(1 << 10, 1ULL << 27), floor, most;
	struct plim_order task = any_task(clock);

	/* Taken before the call, which may change the request: so both have one quotient. */
	most = plim_order_credit_max(&task, effective);
	if (any_bool()) {
		floor = any_floor(clock);
		plim_order_wake(&task, clock, floor, nondet_u64(), effective, any_part());
		PROVE(!plim_order_before(task.start, floor), "and starts not before the floor");
	} else {
		plim_order_requeue(&task, clock, any_bool(), effective, any_part());
	}
	PROVE(!plim_order_before(task.start, clock - most), "the largest credit");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_preempted_task_keeps_its_deadline(void)
{
	plim_u64 clock = nondet_u64();
	struct plim_order task = any_task(clock), before = task;

	plim_order_requeue(&task, clock, any_bool(), any_u64(1 << 10, 1ULL << 27), any_part());
	ASSUME(plim_order_before(task.start, before.deadline));
	PROVE(task.deadline == plim_order_later(before.deadline, clock),
	      "unless the clock has passed it");
	PROVE(task.request_ns == before.request_ns, "and its request");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_what_is_left_is_a_request_at_most(void)
{
	struct plim_order task = any_task(nondet_u64());
	plim_u64 left_ns = plim_order_left_ns(&task, any_u64(0, 1ULL << 27));

	PROVE(left_ns <= task.request_ns, "a request");
	PROVE(!plim_order_is_served(&task) || left_ns == 0, "nothing of a served one");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_requests_stay_in_their_range(void)
{
	plim_u64 clock = nondet_u64();
	struct plim_order task = any_task(clock), before = task;
	int fixed = any_bool();

	if (any_bool()) {
		plim_order_sleep(&task, clock, fixed);
		PROVE(task.request_ns <= before.request_ns, "a sleep does not lengthen it");
	} else {
		plim_order_requeue(&task, clock, fixed, any_u64(1 << 10, 1ULL << 27), any_part());
		PROVE(task.request_ns >= before.request_ns, "running on does not shorten it");
	}
	PROVE(task.request_ns >= PLIM_ORDER_REQUEST_MIN_NS &&
		      task.request_ns <= PLIM_ORDER_REQUEST_MAX_NS,
	      "in the range");
	PROVE(!fixed || task.request_ns == before.request_ns, "one that is given stays");
	PROVE(task.nr_short_runs < PLIM_ORDER_SHORT_RUNS, "runs are counted to the halving");
	PROOF_REACHED();
}

void prove_no_run_is_free_at_any_weight(void)
{
	plim_u64 ran_ns = nondet_u64(), delta = plim_order_delta(ran_ns, nondet_u32());

	PROVE((delta > 0) == (ran_ns > 0), "running costs, waiting does not");
	PROVE(delta <= 1ULL << 57, "a small part of the range of virtual time");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_equals_do_not_preempt_each_other(void)
{
	plim_u64 a = nondet_u64(), b = nondet_u64(), a_ns = any_request(), b_ns = any_request();

	ASSUME(a - b < NEAR || b - a < NEAR);
	PROVE(!plim_order_preempts(a, a_ns, b, a_ns, 0), "the same request");
	PROVE(!(plim_order_preempts(a, a_ns, b, b_ns, any_bool()) &&
		plim_order_preempts(b, b_ns, a, a_ns, any_bool())),
	      "never both ways");
	PROVE(b_ns > PLIM_ORDER_REQUEST_NEW_NS || !plim_order_preempts(a, a_ns, b, b_ns, 0),
	      "nor does any a short request");
	PROVE(!plim_order_preempts(a, a_ns, b, b_ns, 1) || plim_order_before(a, b),
	      "a later deadline waits, also for one that is served");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_move_keeps_the_distance_from_the_clock(void)
{
	plim_u64 from = nondet_u64(), to = nondet_u64();
	struct plim_order task = any_task(from), before = task;

	plim_order_move(&task, from, to);
	PROVE(task.start - to == before.start - from, "of the start");
	PROVE(task.deadline - to == before.deadline - from, "of the deadline");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_move_gives_no_service_and_costs_a_request_at_most(void)
{
	plim_u64 clock = nondet_u64(), effective = any_u64(1 << 10, 1ULL << 27), request;
	struct plim_order task = any_task(clock), before = task;

	request = plim_min(plim_order_delta(task.request_ns, effective), PLIM_ORDER_MOVE_MAX);
	plim_order_leave(&task, clock, effective);
	PROVE(task.start - before.start == (plim_order_before(clock, before.start) ? request : 0),
	      "one that owes owes a request more");
	PROVE(task.deadline - task.start == before.deadline - before.start, "the request stays");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_runs_before_their_turn_let_a_group_owe_no_more_than_a_task(void)
{
	plim_u64 clock = nondet_u64(), share = any_u64(1, 1ULL << 27), was, added, most;

	was = clock + (plim_u64)any_s64(-(plim_s64)NEAR, (plim_s64)NEAR);
	most = plim_order_delta(PLIM_ORDER_DEBT_MAX_NS, share);
	added = plim_order_group_early(was, clock, any_u64(1, PLIM_NSEC_PER_SEC), share);
	PROVE(!plim_order_before(was + added, was), "its clock goes forward");
	PROVE(added == 0 || !plim_order_before(clock + most, was + added), "the largest debt");
	PROVE(added > 0 || !plim_order_before(was, clock + most), "up to which all counts");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_a_yield_gives_up_the_rest_or_the_largest_credit(void)
{
	plim_u64 clock = nondet_u64();
	struct plim_order task = any_task(clock), before = task;

	plim_order_yield(&task);
	PROVE(task.start - before.start <= PLIM_ORDER_CREDIT_NS, "no more virtual time");
	PROVE(task.deadline == before.deadline, "of the present request");
	PROVE(plim_order_is_served(&task) || task.start - before.start == PLIM_ORDER_CREDIT_NS,
	      "all of it, unless that is longer");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_no_credit_comes_along_to_another_tier(void)
{
	plim_u64 clock = nondet_u64();
	struct plim_order task = any_task(clock), before = task;

	plim_order_forfeit(&task, clock);
	PROVE(task.start == plim_order_later(before.start, clock), "a debt stays");
	PROVE(task.deadline - task.start == before.deadline - before.start, "and the request");
	PROVE(task.credit == 0, "and what it slept with goes");
	PROOF_REACHED();
}

/* checks off: unsigned-overflow conversion (virtual time wraps on purpose) */
void prove_debt_before_its_turn_is_bounded(void)
{
	plim_u64 clock = nondet_u64(), effective = any_u64(1, 1ULL << 27), most;
	struct plim_order task = any_task(clock), before = task;

	most = plim_order_delta(PLIM_ORDER_DEBT_MAX_NS, effective);
	plim_order_forgive(&task, clock, effective);
	PROVE(!plim_order_before(clock + most, task.start), "the largest debt");
	PROVE(!plim_order_before(before.start, task.start), "none is added");
	PROVE(task.deadline - task.start == before.deadline - before.start, "the request stays");
	PROVE(task.start == before.start || task.start == clock + most, "no more is forgiven");
	PROOF_REACHED();
}
