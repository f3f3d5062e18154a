/* What mrc_post_send, mrc_post_recv and mrc_poll_cq cost their caller: ns per call, a line for each
   burst of BURST calls. The queue pair is in ERROR, so each request comes back flushed and no network
   is waited for; the loop takes requests while they are posted, as it always does. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "mrc.h"

#define BURST 128

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void must(int good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static void idle(long ns)
{
	struct timespec t = { 0, ns };
	nanosleep(&t, 0);
}

int main(int argc, char **argv)
{
	int bursts = argc > 1 ? atoi(argv[1]) : 1000, each = argc > 2 ? atoi(argv[2]) : 1;
	struct ibv_device **list = ibv_get_device_list(0);
	must(list && list[0], "ibv_get_device_list");
	struct ibv_context *context = ibv_open_device(list[0]);
	must(context != 0, "ibv_open_device");
	struct mrc_context *mrc = mrc_create_context(context, 0);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	static uint8_t memory[4096];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE);
	struct mrc_cq *cq = mrc_create_cq(mrc, 4 * BURST, 0, 0, 0);
	must(mrc && pd && mr && cq, "objects");
	struct mrc_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .pd = pd };
	init.cap = (struct ibv_qp_cap){ .max_send_wr = BURST, .max_recv_wr = BURST };
	struct mrc_qp *qp = mrc_create_qp(mrc, &init);
	must(qp != 0, "mrc_create_qp");
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_ERR };
	must(mrc_modify_qp(qp, &to, IBV_QP_STATE, 0, 0) == 0, "mrc_modify_qp");

	struct ibv_sge sge = { (uintptr_t)memory, sizeof memory, mr->lkey };
	struct ibv_send_wr send = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED }, *bad_send;
	struct ibv_recv_wr receive = { 0 }, *bad_receive;
	struct ibv_wc wc[BURST];
	for (int burst = 0; burst < bursts; burst++) {
		long a = now();
		for (int i = 0; i < BURST; i++)
			must(mrc_post_send(qp, &send, &bad_send) == 0, "mrc_post_send");
		long b = now();
		for (int i = 0; i < BURST; i++)
			must(mrc_post_recv(qp, &receive, &bad_receive) == 0, "mrc_post_recv");
		long c = now();
		idle(300000); /* all of them are flushed now, on the loop's own core */
		long taken = 0, calls = 0, d = now();
		while (taken < 2 * BURST) {
			int n = mrc_poll_cq(cq, each, wc);
			must(n >= 0, "mrc_poll_cq");
			taken += n;
			calls += n == each;
			if (n < each)
				sched_yield();
		}
		long e = now();
		long empty = now();
		for (int i = 0; i < BURST; i++)
			must(mrc_poll_cq(cq, 1, wc) == 0, "mrc_poll_cq");
		printf("%.1f %.1f %.1f %.1f\n", (b - a) / (double)BURST, (c - b) / (double)BURST,
		       (e - d) / (double)(calls ? calls : 1), (now() - empty) / (double)BURST);
	}
	return 0;
}
