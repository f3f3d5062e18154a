/* A library with moods: it has the functions of mrc_ctl.h, and WORSE says which of them to distrust.
   `flood`: events never end, of EVs that nobody set, of profile 0, in states that there are not.
   `moody`: of each function, of eleven calls two are interrupted, and one fails for no reason.
   `flaps`: ports 0 and 31 are there too, and one comes and goes. `times`: round trips of 0 and of 4 s.
   `stale`: each batch is answered with the numbers of the one before. `old`: it says that it is of
   version 0, and writes events of today. `limits`: no room for an EV, none for an entry. `list`: a
   thousand devices, and one in the list. `kept`: the profile is ONLINE, with as many EVs of
   another plan as are planned; `more`: with more. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <mrc.h>
#include <mrc_ctl.h>

#define API __attribute__((visibility("default")))
#define EVS 8

static char name[] = "worse0";
static long words[64];
static struct mrc_ctl_ev_op_entry evs[EVS]; /* of the profile */
static int n_evs, state;

static int is(const char *how)
{
	const char *worse = getenv("WORSE");
	return worse && !strcmp(worse, how);
}

static int fails(int *calls)
{
	int n = ++*calls;
	errno = n % 11 == 6 ? EIO : EINTR;
	return is("moody") && (n % 11 == 6 || n % 11 == 1 || n % 11 == 2);
}
#define MOOD static int calls; if (fails(&calls)) return -1

API struct ibv_device **ibv_get_device_list(int *n)
{
	static struct ibv_device *list[2];
	list[0] = (struct ibv_device *)words;
	*n = is("list") ? 1000 : 1;
	return list;
}
API void ibv_free_device_list(struct ibv_device **list) { (void)list; }
API const char *ibv_get_device_name(struct ibv_device *device)
{
	return device == (struct ibv_device *)words ? name : (abort(), name);
}
API struct ibv_context *ibv_open_device(struct ibv_device *d) { return (struct ibv_context *)d; }
API int ibv_close_device(struct ibv_context *context) { (void)context; return 0; }
API int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context, (void)port, (void)index;
	memset(gid, 1, sizeof *gid);
	return 0;
}
API struct mrc_context *mrc_create_context(struct ibv_context *c, struct mrc_context_attr *a)
{
	state = n_evs = 0;
	if (is("kept") || is("more")) {
		state = MRC_CTL_PROFILE_ONLINE;
		n_evs = is("kept") ? 4 : EVS;
		for (int i = 0; i < n_evs; i++) {
			evs[i] = (struct mrc_ctl_ev_op_entry){ .state = MRC_CTL_EV_GOOD };
			evs[i].ev.val[0] = i;
			evs[i].ev.port = i % 2 + 1;
		}
		evs[3].state = MRC_CTL_EV_DENIED;
	}
	return a && a->mrc_api_version_used > MRC_CTL_API_CURRENT_VERSION ? 0 : (struct mrc_context *)c;
}
API int mrc_destroy_context(struct mrc_context *context) { (void)context; return 0; }

API void mrc_ctl_query_version(uint32_t *now, uint32_t *oldest, uint32_t *own, uint32_t *own_oldest)
{
	*now = is("old") ? 0 : MRC_CTL_API_CURRENT_VERSION + (1 << 16);
	*oldest = *own = *own_oldest = 0;
}

API int mrc_ctl_query_device(struct ibv_context *context, struct mrc_ctl_device_attr *attr)
{
	MOOD;
	(void)context;
	memset(attr, 0, sizeof *attr);
	attr->ev.ev_max_count_profile = is("limits") ? 0 : EVS;
	attr->ev.ev_op_max_entries = 3;
	attr->phy_port_mask = is("flaps") ? 0x80000007 : 6;
	attr->opt_attr = MRC_CTL_OPT_CAP_EV_EVENT | MRC_CTL_OPT_CAP_EP_OP_EV_PROBE |
			 MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE;
	return 0;
}

API int mrc_ctl_query_port(struct mrc_context *context, uint8_t port, struct mrc_ctl_port_attr *attr,
			   int mask)
{
	MOOD;
	(void)context, (void)mask;
	attr->port_admin_state = !is("flaps") || port != 2 || calls % 4 > 1 ? 7 : 0;
	return 0;
}

API int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id,
				      struct mrc_ctl_ev_fmt_profile_attr *attr, int mask)
{
	MOOD;
	(void)context, (void)id, (void)attr, (void)mask;
	return 0;
}

/* There is no query of formats. */

API int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id,
				 struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	MOOD;
	(void)context, (void)id, (void)mask;
	attr->profile_state = state;
	attr->ev_op.entry_count = n_evs;
	memcpy(attr->ev_op.entries, evs, n_evs * sizeof *evs);
	return 0;
}

API int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id,
				  struct mrc_ctl_ev_profile_attr *attr, int mask)
{
	MOOD;
	(void)context, (void)id;
	if (mask & MRC_CTL_EV_PROFILE_STATE) {
		if (abs((int)attr->profile_state - state) != 1)
			return errno = EINVAL, -1;
		state = attr->profile_state;
		n_evs = state == MRC_CTL_PROFILE_INIT ? 0 : n_evs;
	}
	if (mask & MRC_CTL_EV_PROFILE_COUNT) {
		n_evs = attr->ev_count;
		memset(evs, 0, sizeof evs);
	}
	for (int k = 0; mask & MRC_CTL_EV_PROFILE_EV_OP && k < attr->ev_op.entry_count; k++) {
		struct mrc_ctl_ev_op_entry *one = &attr->ev_op.entries[k];
		int i = 0;
		while (i < n_evs && memcmp(&evs[i].ev, &one->ev, sizeof one->ev))
			i++;
		if (i == n_evs)
			return errno = ENOENT, -1;
		if (attr->ev_op.op == MRC_CTL_EV_OP_REPLACE_EV)
			evs[i].ev = one->ev_new;
		evs[i].state = one->state;
	}
	return 0;
}

API struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe, void *of,
					      struct mrc_comp_channel *channel, int vector)
{
	static int calls;
	(void)context, (void)cqe, (void)of, (void)channel, (void)vector;
	return fails(&calls) ? 0 : (struct mrc_cq *)words;
}

API int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int n, struct mrc_ctl_ev_event *events)
{
	(void)cq;
	if (!is("flood") && !is("old"))
		return 0;
	memset(events, 0, n * sizeof *events);
	for (int i = 0; i < n; i++) {
		events[i].profile_id = i % 2;
		events[i].ev.val[5] = i;
		events[i].ev.port = 200;
		events[i].state = 0x55;
	}
	return n;
}

API int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t tc,
				   enum mrc_ctl_ep_op_type type, struct mrc_ctl_ep_req *req, int n,
				   uint32_t timeout_ns, struct mrc_ctl_ep_rsp *rsp, int *answered)
{
	static struct mrc_ctl_ep_req before[1024];
	static int n_before;
	const struct mrc_ctl_ep_req *of = is("stale") ? before : req;
	MOOD;
	(void)context, (void)tc, (void)type, (void)timeout_ns;
	*answered = is("stale") && n_before < n ? n_before : n;
	for (int i = 0; i < *answered; i++)
		rsp[i] = (struct mrc_ctl_ep_rsp){ .req_id = of[i].req_id, .port = of[i].req_ev.port,
			.rtt = !is("times") ? 5000 : i % 2 ? 0xffffffff : 0 };
	memcpy(before, req, n * sizeof *req);
	n_before = n;
	errno = ETIMEDOUT;
	return is("stale") ? -1 : 0;
}
