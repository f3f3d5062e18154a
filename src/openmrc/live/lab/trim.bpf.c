// SPDX-License-Identifier: Apache-2.0
/*
 * What Linux's switches lack, at the way out of a port (clsact egress): three classes by DSCP, ECN
 * marks, and trimming (MRC 2.13; rows 15 and 21). It looks at what the port's shaper holds. Written
 * without headers, so that clang alone compiles it. The kernel's structures are looked up by name
 * when it is loaded.
 *
 * LIMIT, ECN_LOW, ECN_HIGH: bytes that wait; TRIMMED: the DSCP of what is cut here; OUTER_LENGTH_ALONE:
 * 1 to leave the lengths in it as they are; DSCP_...: those of the fabric.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define inlined static inline __attribute__((always_inline))

struct __sk_buff { /* the first fields of uapi/linux/bpf.h */
	u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto;
	u32 priority, ingress_ifindex, ifindex;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct gnet_stats_queue { u32 backlog; };
struct Qdisc { struct gnet_stats_queue qstats; };
struct netdev_queue { struct Qdisc *qdisc; };
struct net_device { struct netdev_queue *_tx; };
struct sk_buff { struct net_device *dev; };
#pragma clang attribute pop

extern void *bpf_cast_to_kern_ctx(void *) SEC(".ksyms");

static u32 (*random_u32)(void) = (void *)7;
static long (*store)(struct __sk_buff *, u32 at, const void *, u32 n, u64) = (void *)9;
static long (*redirect)(u32 ifindex, u64) = (void *)23;
static long (*load)(const struct __sk_buff *, u32 at, void *, u32 n) = (void *)26;
static long (*change_tail)(struct __sk_buff *, u32 n, u64) = (void *)38;

enum { OK = 0, SHOT = 2 };                               /* uapi/linux/pkt_cls.h */
enum { CONTROL = 0x10010, RETRANSMIT = 0x10011, DATA = 0x10012 }; /* the shaper's classes */
enum { ETHERNET = 14, IPV6 = 40, UDP = 8, ICRC = 4, KEPT = 128, IN_IPV6 = 41 };
enum { ECT_NOT = 0, CE = 3 };

inlined void put_length(struct __sk_buff *skb, u32 at, u16 n)
{
	u8 bytes[2] = {n >> 8, n & 255};

	store(skb, at, bytes, 2, 0);
}

/* The two bytes with version, DSCP, ECN and the top of the flow label. */
inlined void put_class(struct __sk_buff *skb, u8 *two, u8 dscp, u8 ecn)
{
	two[0] = (two[0] & 0xf0) | dscp >> 2;
	two[1] = (two[1] & 0x0f) | (dscp & 3) << 6 | ecn << 4;
	store(skb, ETHERNET, two, 2, 0);
}

/*
 * 128 bytes of the IP packet stay, or all but the iCRC, and the lengths say so; UDP may be inside of
 * another IPv6.
 */
inlined int cut(struct __sk_buff *skb, u8 *two, u8 ecn)
{
	u8 next = 0;
	u32 udp = IPV6, n = skb->len - ETHERNET;

	n = n > KEPT ? KEPT : n - ICRC;
	if (n < 2 * IPV6 + UDP || change_tail(skb, ETHERNET + n, 0))
		return SHOT;
	put_class(skb, two, TRIMMED, ecn);
	put_length(skb, ETHERNET + 4, n - IPV6);
	if (!OUTER_LENGTH_ALONE) {
		load(skb, ETHERNET + 6, &next, 1);
		if (next == IN_IPV6) {
			udp = 2 * IPV6;
			put_length(skb, ETHERNET + IPV6 + 4, n - 2 * IPV6);
		}
		put_length(skb, ETHERNET + udp + 4, n - udp);
	}
	/* Once more around, for the shaper counts the length that it is told before this program. */
	return redirect(skb->ifindex, 0);
}

SEC("tc") int leave(struct __sk_buff *skb)
{
	u8 head[ETHERNET + 2], *two = head + ETHERNET;
	struct sk_buff *kernels = bpf_cast_to_kern_ctx(skb);
	u32 waiting = kernels->dev->_tx->qdisc->qstats.backlog;

	if (load(skb, 0, head, sizeof(head)) || head[12] != 0x86 || head[13] != 0xdd)
		return OK;
	u8 dscp = (two[0] & 15) << 2 | two[1] >> 6, ecn = two[1] >> 4 & 3;

	if (dscp == DSCP_CONTROL || dscp == DSCP_TRIMMED || dscp == DSCP_TRIMMED_LASTHOP) {
		skb->priority = CONTROL;
		return OK;
	}
	skb->priority = dscp == DSCP_TRIMMABLE_RETX ? RETRANSMIT : DATA;
	if (waiting + skb->len > LIMIT) {
		return dscp == DSCP_TRIMMABLE || dscp == DSCP_TRIMMABLE_RETX ? cut(skb, two, ecn) : SHOT;
	}
	if (waiting > ECN_LOW && ecn != ECT_NOT && ecn != CE &&
	    (waiting >= ECN_HIGH || random_u32() % (ECN_HIGH - ECN_LOW) < waiting - ECN_LOW))
		put_class(skb, two, dscp, CE);
	return OK;
}

char _license[] SEC("license") = "GPL"; /* what the kernel's function asks for */
