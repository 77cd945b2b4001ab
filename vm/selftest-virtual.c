/*
 * Load of vm/selftest in virtual time: a service of 300 µs at 400 requests a
 * second, alone and then beside two busy threads. Prints the percentiles of the
 * requests' latency in nanoseconds, and the total CPU time.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum { REQUESTS = 400, BUSY = 2 };
static const int64_t service_ns = 300000, mean_gap_ns = 2500000;
static volatile int stop;

static int64_t now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void sleep_until(int64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Returns a gap from 0 to twice the mean, the same in every run. */
static int64_t gap(void)
{
	static uint64_t state = 1;

	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int64_t)((state >> 33) % (uint64_t)(2 * mean_gap_ns));
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Latency counts from the due time of a request. */
static void serve(const char *name)
{
	static int64_t latency[REQUESTS];
	int64_t due = now(CLOCK_MONOTONIC), end;

	for (int i = 0; i < REQUESTS; i++) {
		due += gap();
		sleep_until(due);
		end = now(CLOCK_THREAD_CPUTIME_ID) + service_ns;
		while (now(CLOCK_THREAD_CPUTIME_ID) < end)
			;
		latency[i] = now(CLOCK_MONOTONIC) - due;
	}
	qsort(latency, REQUESTS, sizeof(*latency), compare);
	printf("%s p50 %lld p99 %lld max %lld\n", name, (long long)latency[REQUESTS / 2],
	       (long long)latency[REQUESTS * 99 / 100], (long long)latency[REQUESTS - 1]);
}

static void *burn(void *unused)
{
	while (!stop)
		;
	return unused;
}

int main(void)
{
	pthread_t thread[BUSY];

	/* Without this, a sleep may last 50 µs longer than requested. */
	prctl(PR_SET_TIMERSLACK, 1);
	serve("alone");
	for (int i = 0; i < BUSY; i++)
		if (pthread_create(&thread[i], NULL, burn, NULL))
			return 1;
	serve("beside");
	stop = 1;
	for (int i = 0; i < BUSY; i++)
		pthread_join(thread[i], NULL);
	printf("cpu %lld\n", (long long)now(CLOCK_PROCESS_CPUTIME_ID));
	return 0;
}
