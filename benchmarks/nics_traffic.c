/* Writes over libmrc, for benchmarks/nics_traffic.py: queue pairs that name an EV profile, in the
   process that controls the NIC. Functions return 0, or an errno. */
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "mrc.h"
#include "mrc_ctl.h"

struct transfer {
	struct ibv_context *context;
	struct mrc_context *mrc;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct mrc_cq *cq;
	struct mrc_qp *qp;
	uint8_t *memory;
	uint32_t size, qpn;
};

struct peer {
	uint32_t qpn, psn, rkey, own_psn;
	uint64_t address;
	uint8_t gid[16];
};

void *transfer_new(uint32_t size)
{
	struct transfer *t = calloc(1, sizeof *t);
	struct ibv_device **list = ibv_get_device_list(0);
	if (!t || !list || !list[0] || !(t->context = ibv_open_device(list[0])))
		return 0;
	ibv_free_device_list(list);
	t->size = size;
	t->memory = malloc(size);
	t->mrc = mrc_create_context(t->context, 0);
	t->pd = ibv_alloc_pd(t->context);
	if (!t->memory || !t->mrc || !t->pd)
		return 0;
	memset(t->memory, 0x5a, size);
	t->mr = ibv_reg_mr(t->pd, t->memory, size, IBV_ACCESS_LOCAL_WRITE);
	t->cq = mrc_create_cq(t->mrc, 64, 0, 0, 0);
	struct mrc_qp_init_attr init = { .send_cq = t->cq, .recv_cq = t->cq, .pd = t->pd };
	init.cap = (struct ibv_qp_cap){ .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1,
		.max_recv_sge = 1 };
	t->qp = t->mr && t->cq ? mrc_create_qp(t->mrc, &init) : 0;
	return t->qp && !mrc_get_qpn(t->qp, &t->qpn) ? t : 0;
}

uint32_t transfer_qpn(struct transfer *t) { return t->qpn; }

int transfer_meet(struct transfer *t, const struct peer *to, uint64_t ev_profile)
{
	struct mrc_qp_attr m = { 0 };
	struct ibv_port_attr port = { 0 };
	if (ibv_query_port(t->context, 1, &port))
		return EIO;
	struct ibv_qp_attr init = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_qp_attr rtr = { .qp_state = IBV_QPS_RTR, .path_mtu = port.active_mtu,
		.dest_qp_num = to->qpn, .rq_psn = to->psn, .ah_attr = { .is_global = 1, .port_num = 1 } };
	struct ibv_qp_attr rts = { .qp_state = IBV_QPS_RTS, .sq_psn = to->own_psn };
	m.profile.ev_profile_id = ev_profile;
	memcpy(rtr.ah_attr.grh.dgid.raw, to->gid, sizeof to->gid);
	if (mrc_modify_qp(t->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS, &m, MRC_QP_EV_PROFILE_ID) ||
	    mrc_modify_qp(t->qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			  IBV_QP_RQ_PSN, &m, 0) ||
	    mrc_modify_qp(t->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN, &m, 0))
		return errno;
	return 0;
}

/* One write after the other; how long each took, in ns. */
int transfer_write(struct transfer *t, const struct peer *to, uint32_t bytes, uint32_t n, uint64_t *ns)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ibv_sge part = { (uintptr_t)t->memory, bytes, t->mr->lkey };
		struct ibv_send_wr *bad, wr = { .wr_id = i, .sg_list = &part, .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED };
		struct timespec began, ended;
		struct ibv_wc wc;
		int found;
		wr.wr.rdma.remote_addr = to->address;
		wr.wr.rdma.rkey = to->rkey;
		clock_gettime(CLOCK_MONOTONIC, &began);
		if (mrc_post_send(t->qp, &wr, &bad))
			return errno;
		while (!(found = mrc_poll_cq(t->cq, 1, &wc)))
			sched_yield();
		if (found < 0 || wc.status != IBV_WC_SUCCESS)
			return EIO;
		clock_gettime(CLOCK_MONOTONIC, &ended);
		ns[i] = (ended.tv_sec - began.tv_sec) * 1000000000ull + ended.tv_nsec - began.tv_nsec;
	}
	return 0;
}

enum { NOTHING, CHANGES, BURNS };

/* What another thread does, `n` times so far, for `cpu_ns` of processor time. */
struct beside {
	volatile uint32_t what;
	uint32_t n;
	uint64_t cpu_ns, each_ns;
};

static uint64_t ns_of(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* For good, once every `gap_ns`: deny an EV, or allow it again, in turn; or use as much processor
   time as that takes, for nothing. Returns only if it is refused. */
int transfer_beside(struct transfer *t, uint64_t profile, const uint8_t *value, uint8_t port,
		    uint32_t gap_ns, struct beside *b)
{
	struct mrc_ctl_ev_op_entry entry = { .ev.port = port };
	struct mrc_ctl_ev_profile_attr attr = {
		.ev_op = { MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1 } };
	uint64_t due = ns_of(CLOCK_MONOTONIC);
	int denied = 0;
	memcpy(entry.ev.val, value, sizeof entry.ev.val);
	for (;;) {
		uint64_t began = ns_of(CLOCK_THREAD_CPUTIME_ID), now = ns_of(CLOCK_MONOTONIC);
		if (b->what == CHANGES || denied) {
			denied = !denied;
			entry.state = denied ? MRC_CTL_EV_DENIED : MRC_CTL_EV_GOOD;
			if (mrc_ctl_modify_ev_profile(t->mrc, profile, &attr, MRC_CTL_EV_PROFILE_EV_OP))
				return errno;
			b->cpu_ns += ns_of(CLOCK_THREAD_CPUTIME_ID) - began;
			b->n++;
		} else if (b->what == BURNS) {
			while (ns_of(CLOCK_THREAD_CPUTIME_ID) - began < b->each_ns)
				;
		}
		due = b->what == NOTHING ? now + gap_ns : due + gap_ns; /* what is late is made up for */
		struct timespec at = { due / 1000000000, due % 1000000000 };
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, 0);
	}
}
