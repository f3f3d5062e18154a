/* A controller in C: it gives a NIC its paths, probes them, denies those that do not answer, and
   follows what happens to them.

       controller PEER-GID EV:PORT...       EVs in hex, an even number of digits: 0123abcd:1

   It runs where its NIC is, with CAP_NET_ADMIN. Queue pairs that name EV profile 1 use the paths;
   they are in the same process (libmrc), or anywhere on the host (a NIC). */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <mrc.h>
#include <mrc_ctl.h>

enum { FORMAT = 13, PROFILE = 1, EVS_MAX = 256, QUEUE = 128, ROUNDS = 10 };
#define TIMEOUT_NS 20000000u /* of a batch of probes */
#define PAUSE_NS 100000000L  /* between two */

static struct mrc_context *mrc;
static struct mrc_ctl_device_attr device;
static struct mrc_ctl_ev evs[EVS_MAX];
static int n_evs, denied[EVS_MAX];

static void must(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "controller: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct ibv_context *open_first(void)
{
	int n = 0;
	struct ibv_device **devices = ibv_get_device_list(&n);
	must(!devices, "ibv_get_device_list");
	if (n == 0)
		errno = ENODEV;
	must(n == 0, "no device");
	struct ibv_context *context = ibv_open_device(devices[0]);
	must(!context, "ibv_open_device");
	ibv_free_device_list(devices);
	return context;
}

/* "0123abcd:1" */
static void read_ev(const char *text, struct mrc_ctl_ev *ev)
{
	const char *colon = strchr(text, ':');
	size_t digits = colon ? (size_t)(colon - text) : 0;
	memset(ev, 0, sizeof *ev);
	errno = EINVAL;
	must(!digits || digits % 2 || digits > 2 * sizeof ev->val, text);
	for (size_t i = 0; i < digits / 2; i++) {
		unsigned byte = 0;
		errno = EINVAL;
		must(sscanf(text + 2 * i, "%2x", &byte) != 1, text);
		ev->val[i] = (uint8_t)byte;
	}
	ev->port = (uint8_t)atoi(colon + 1);
}

static void show(const struct mrc_ctl_ev *ev, const char *what)
{
	for (int i = 0; i < (int)(device.ev.ev_max_width / 8); i++)
		printf("%02x", ev->val[i]);
	printf(":%u %s\n", ev->port, what);
}

/* An EV is what stands in the packet: one field, as wide as the device has. */
static void make_format(void)
{
	struct mrc_ctl_ev_fmt_field field = { .width = (uint8_t)device.ev.ev_max_width };
	int udp = !(device.ev.ev_fmt_mode_mask & MRC_CTL_EV_FMT_MODE_STEV);
	struct mrc_ctl_ev_fmt_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_fmt_mode = udp ? MRC_CTL_EV_FMT_MODE_UDP : MRC_CTL_EV_FMT_MODE_STEV,
		.ev_fmt_op = { MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, &field, 1 },
	};
	must(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr,
		     MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE |
		     MRC_CTL_EV_FMT_PROFILE_OP), "EV format profile");
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	must(mrc_ctl_modify_ev_fmt_profile(mrc, FORMAT, &attr, MRC_CTL_EV_FMT_PROFILE_STATE),
		"EV format profile, ONLINE");
}

/* The profile is made of unpopulated EVs; each is replaced before it goes ONLINE. */
static void make_profile(void)
{
	struct mrc_ctl_ev_op_entry entries[EVS_MAX];
	struct mrc_ctl_ev_profile_attr attr = {
		.profile_state = MRC_CTL_PROFILE_OFFLINE,
		.ev_mode = MRC_CTL_EV_MODE_EXP,
		.ev_fmt_profile_id = FORMAT,
		.ev_count = (uint32_t)n_evs,
		.ev_min_active = (uint32_t)n_evs / 4,
		.ev_event_mask = MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD,
	};
	must(mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr,
		     MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE |
		     MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT |
		     MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK), "EV profile");
	memset(entries, 0, sizeof entries);
	for (int i = 0; i < n_evs; i++) {
		entries[i].ev_new = evs[i];
		entries[i].state = MRC_CTL_EV_GOOD;
	}
	attr = (struct mrc_ctl_ev_profile_attr){
		.ev_op = { MRC_CTL_EV_OP_REPLACE_EV, entries, n_evs },
	};
	must(mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), "its EVs");
	attr.profile_state = MRC_CTL_PROFILE_ONLINE;
	must(mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_STATE),
		"EV profile, ONLINE");
}

static void set_state(int i, enum mrc_ctl_ev_state state)
{
	struct mrc_ctl_ev_op_entry entry = { .ev = evs[i], .state = state };
	struct mrc_ctl_ev_profile_attr attr = {
		.ev_op = { MRC_CTL_EV_OP_MODIFY_EV_STATE, &entry, 1 },
	};
	must(mrc_ctl_modify_ev_profile(mrc, PROFILE, &attr, MRC_CTL_EV_PROFILE_EV_OP), "state");
}

/* Probe every path: what does not answer is denied, and allowed again once it does. */
static void probe(const union ibv_gid *from, const union ibv_gid *to)
{
	struct mrc_ctl_ep_req requests[EVS_MAX];
	struct mrc_ctl_ep_rsp answers[EVS_MAX];
	int answered[EVS_MAX] = { 0 }, n = 0;
	memset(requests, 0, sizeof requests);
	for (int i = 0; i < n_evs; i++) {
		requests[i].req_id = (uint16_t)i;
		requests[i].sgid = *from;
		requests[i].dgid = *to;
		requests[i].ev_fmt_mode = (enum mrc_ctl_ev_fmt_mode)device.ev.ev_fmt_mode_mask;
		requests[i].req_ev = evs[i];
	}
	int failed = mrc_ctl_ep_batch_send_wait(mrc, 0, MRC_CTL_EP_OP_EV_PROBE, requests, n_evs,
						TIMEOUT_NS, answers, &n);
	must(failed && errno != ETIMEDOUT, "probes");
	unsigned longest = 0;
	for (int i = 0; i < n; i++) {
		answered[answers[i].req_id] = 1;
		longest = answers[i].rtt > longest ? answers[i].rtt : longest;
	}
	printf("%d of %d probes answered, within %u us\n", n, n_evs, longest / 1000);
	for (int i = 0; i < n_evs && n > 0; i++) { /* no answer at all: the peer is not there */
		if (denied[i] == !answered[i])
			continue;
		denied[i] = !answered[i];
		set_state(i, denied[i] ? MRC_CTL_EV_DENIED : MRC_CTL_EV_GOOD);
		show(&evs[i], denied[i] ? "DENIED" : "GOOD again");
	}
}

static void follow(struct mrc_cq *queue)
{
	struct mrc_ctl_ev_event events[16];
	int n;
	while ((n = mrc_ctl_poll_ev_event(queue, 16, events)) > 0) {
		for (int i = 0; i < n; i++) {
			if (events[i].drop_count)
				printf("%u events were dropped\n", events[i].drop_count);
			show(&events[i].ev,
			     events[i].state == MRC_CTL_EV_GOOD ? "is GOOD" : "is ASSUMED_BAD");
		}
	}
	must(n < 0, "mrc_ctl_poll_ev_event");
}

int main(int argc, char **argv)
{
	union ibv_gid from, to;
	if (argc < 3 || argc - 2 > EVS_MAX || inet_pton(AF_INET6, argv[1], &to) != 1) {
		fprintf(stderr, "controller PEER-GID EV:PORT...\n");
		return 2;
	}
	for (n_evs = 0; n_evs < argc - 2; n_evs++)
		read_ev(argv[2 + n_evs], &evs[n_evs]);

	struct ibv_context *context = open_first();
	must(ibv_query_gid(context, 1, 0, &from), "ibv_query_gid");
	must(mrc_ctl_query_device(context, &device), "mrc_ctl_query_device");
	struct mrc_context_attr version = { .mrc_api_version_used = MRC_API_CURRENT_VERSION };
	mrc = mrc_create_context(context, &version);
	must(!mrc, "mrc_create_context");
	errno = EOPNOTSUPP;
	must(!(device.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT), "no EV events");
	must(!(device.opt_attr & MRC_CTL_OPT_CAP_EP_OP_EV_PROBE), "no EV probes");

	make_format();
	make_profile();
	struct mrc_cq *queue = mrc_ctl_create_ev_event_cq(mrc, QUEUE, NULL, NULL, 0);
	must(!queue, "mrc_ctl_create_ev_event_cq");
	for (int round = 0; round < ROUNDS; round++) {
		probe(&from, &to);
		follow(queue);
		fflush(stdout);
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
	}

	must(mrc_destroy_cq(queue), "mrc_destroy_cq");
	struct mrc_ctl_ev_profile_attr down = { .profile_state = MRC_CTL_PROFILE_OFFLINE };
	must(mrc_ctl_modify_ev_profile(mrc, PROFILE, &down, MRC_CTL_EV_PROFILE_STATE), "OFFLINE");
	must(mrc_destroy_context(mrc), "mrc_destroy_context");
	must(ibv_close_device(context), "ibv_close_device");
	return 0;
}
