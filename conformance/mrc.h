/* MRC on the wire, made from openmrc's layouts by conformance/generate.py; edit those.

   A field is the number of its first bit in the header, the first on the wire being 0, and its
   width: mrc_get(bytes, MRC_BTH_OPCODE) is the opcode, and
   mrc_put writes it. Fields wider than 64 bits are addresses. The tables of fields have all that
   a decoder looks at in their order on the wire: what a field may say, and the code of `MRC_CODES`
   with which a frame that says otherwise is refused. */
#ifndef MRC_H
#define MRC_H

#include <stddef.h>
#include <stdint.h>

#define MRC_END 0xFFFF /* of a list of values */
enum mrc_counts { MRC_COUNTS_NOTHING, MRC_COUNTS_ALL, MRC_COUNTS_BEHIND };

struct mrc_field {
	const char *name;
	uint16_t bit, bits;
	uint8_t is_signed;
	uint8_t refused;         /* the code, if it says what it may not; 0: it may say anything */
	const uint16_t *allowed; /* values up to MRC_END, or NULL */
	enum mrc_counts counts;  /* bytes up to the packet's end: with its header, or behind that */
};
struct mrc_header { const char *name; size_t bytes; const struct mrc_field *fields; };

static inline uint64_t mrc_get(const uint8_t *header, unsigned bit, unsigned bits)
{
	uint64_t value = 0;
	for (unsigned i = bit; i < bit + bits; i++)
		value = value << 1 | (header[i / 8] >> (7 - i % 8) & 1);
	return value;
}

static inline void mrc_put(uint8_t *header, unsigned bit, unsigned bits, uint64_t value)
{
	for (unsigned i = bit + bits; i-- > bit; value >>= 1)
		header[i / 8] = (header[i / 8] & ~(1 << (7 - i % 8))) | (value & 1) << (7 - i % 8);
}

static inline int mrc_may_say(const struct mrc_field *field, uint64_t value)
{
	const uint16_t *one = field->allowed;
	while (one && *one != MRC_END && *one != value)
		one++;
	return !one || *one != MRC_END;
}

/* RFC 1071: with its checksum in it an IPv4 header, which has no options, sums up to ones */
static inline int mrc_ipv4_sum_is_right(const uint8_t *header)
{
	uint32_t sum = 0;
	for (int i = 0; i < 20; i += 2)
		sum += header[i] << 8 | header[i + 1];
	return sum % 0xFFFF == 0;
}

#define MRC_UDP_PORT 4791
#define MRC_UDP_PORT_ALTERNATIVE 4971
#define MRC_PAYLOAD_BYTES_MAX 8192
#define MRC_CARRIER_USID 224, 16
#define MRC_ENDPOINT_QPN 2
#define MRC_FTYPE_NONE 0
#define MRC_FTYPE_TIMESTAMP 1
/* ETHERTYPE */
#define MRC_ETHERTYPE_IPV6 0x86DD
#define MRC_ETHERTYPE_IPV4 0x800
/* PROTOCOL */
#define MRC_PROTOCOL_UDP 0x11
#define MRC_PROTOCOL_IPV6 0x29
#define MRC_PROTOCOL_ROUTING 0x2B
/* OP */
#define MRC_OP_RDMA_WRITE_FIRST 0xC6
#define MRC_OP_RDMA_WRITE_MIDDLE 0xC7
#define MRC_OP_RDMA_WRITE_LAST 0xC8
#define MRC_OP_RDMA_WRITE_LAST_IMM 0xC9
#define MRC_OP_RDMA_WRITE_ONLY 0xCA
#define MRC_OP_RDMA_WRITE_ONLY_IMM 0xCB
#define MRC_OP_ACKNOWLEDGE 0xD1
#define MRC_OP_ENDPOINT_REQUEST 0xD8
#define MRC_OP_ENDPOINT_RESPONSE 0xD9
#define MRC_OP_RELIABILITY_SACK 0xDC
#define MRC_OP_RELIABILITY_NACK 0xDD
#define MRC_OP_RELIABILITY_PROBE_REQ 0xDE
/* NACK */
#define MRC_NACK_TRIMMED 0x01
#define MRC_NACK_TRIMMED_LASTHOP 0x02
#define MRC_NACK_NO_BITMAP 0x06
#define MRC_NACK_NO_PKT_BUFFER 0x07
#define MRC_NACK_NO_RESOURCE 0x0A
#define MRC_NACK_PSN_OOR_WINDOW 0x0B
#define MRC_NACK_UNEXP_EVENT 0x19
/* M */
#define MRC_M_NONE 0x00
#define MRC_M_SKIP_ONCE 0x01
#define MRC_M_ALWAYS_SKIP 0x02
/* ENDPOINT */
#define MRC_ENDPOINT_PORT_STATUS_UPDATE 0x00
#define MRC_ENDPOINT_EV_PROBE 0x01
/* AETH */
#define MRC_AETH_ACK 0x1F
#define MRC_AETH_NAK_INVALID_REQUEST 0x61
#define MRC_AETH_NAK_ACCESS_ERROR 0x62
/* DSCP */
#define MRC_DSCP_NO_TRIM 0x00
#define MRC_DSCP_TRIMMABLE 0x04
#define MRC_DSCP_TRIMMABLE_RETX 0x08
#define MRC_DSCP_TRIMMED 0x0C
#define MRC_DSCP_TRIMMED_LASTHOP 0x10
#define MRC_DSCP_CONTROL 0x2E
/* ECN */
#define MRC_ECN_NOT_ECT 0x00
#define MRC_ECN_ECT_1 0x01
#define MRC_ECN_ECT_0 0x02
#define MRC_ECN_CE 0x03
/* why a frame is refused */
static const char *const MRC_CODES[] = {
	"OK", "TOO_SHORT", "ETHERTYPE", "IP_VERSION", "IP_HEADER_LENGTH", "IP_LENGTH", "IP_CHECKSUM", "FRAGMENT", "NEXT_HEADER", "ROUTING", "CARRIER_EMPTY", "UDP_PORT", "UDP_LENGTH", "OPCODE", "TRANSPORT_VERSION", "EXTENSION_LENGTH", "FTYPE", "PAD", "PAYLOAD_LENGTH", "ICRC",
};
enum mrc_code { MRC_OK, MRC_E_TOO_SHORT, MRC_E_ETHERTYPE, MRC_E_IP_VERSION, MRC_E_IP_HEADER_LENGTH, MRC_E_IP_LENGTH, MRC_E_IP_CHECKSUM, MRC_E_FRAGMENT, MRC_E_NEXT_HEADER, MRC_E_ROUTING, MRC_E_CARRIER_EMPTY, MRC_E_UDP_PORT, MRC_E_UDP_LENGTH, MRC_E_OPCODE, MRC_E_TRANSPORT_VERSION, MRC_E_EXTENSION_LENGTH, MRC_E_FTYPE, MRC_E_PAD, MRC_E_PAYLOAD_LENGTH, MRC_E_ICRC };

/* Ethernet II; IEEE 802.3 */
#define MRC_ETHERNET_DST_MAC 0, 48
#define MRC_ETHERNET_SRC_MAC 48, 48
#define MRC_ETHERNET_ETHERTYPE 96, 16
static const struct mrc_field MRC_ETHERNET_FIELDS[] = {
	{"dst_mac", 0, 48, 0, 0, NULL, 0},
	{"src_mac", 48, 48, 0, 0, NULL, 0},
	{"ethertype", 96, 16, 0, MRC_E_ETHERTYPE, (const uint16_t[]){34525, 2048, MRC_END}, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_ETHERNET = {"Ethernet", 14, MRC_ETHERNET_FIELDS};

/* IPv6; the outer one's destination is a carrier of uSIDs; RFC 8200, MRC 2.1, 2.12 */
#define MRC_IPV6_VERSION 0, 4
#define MRC_IPV6_DSCP 4, 6
#define MRC_IPV6_ECN 10, 2
#define MRC_IPV6_FLOW_LABEL 12, 20
#define MRC_IPV6_PAYLOAD_LENGTH 32, 16
#define MRC_IPV6_NEXT_HEADER 48, 8
#define MRC_IPV6_HOP_LIMIT 56, 8
#define MRC_IPV6_SRC 64, 128
#define MRC_IPV6_DST 192, 128
static const struct mrc_field MRC_IPV6_FIELDS[] = {
	{"version", 0, 4, 0, MRC_E_IP_VERSION, (const uint16_t[]){6, MRC_END}, 0},
	{"dscp", 4, 6, 0, 0, NULL, 0},
	{"ecn", 10, 2, 0, 0, NULL, 0},
	{"flow_label", 12, 20, 0, 0, NULL, 0},
	{"payload_length", 32, 16, 0, MRC_E_IP_LENGTH, NULL, MRC_COUNTS_BEHIND},
	{"next_header", 48, 8, 0, MRC_E_NEXT_HEADER, (const uint16_t[]){17, 41, 43, MRC_END}, 0},
	{"hop_limit", 56, 8, 0, 0, NULL, 0},
	{"src", 64, 128, 0, 0, NULL, 0},
	{"dst", 192, 128, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_IPV6 = {"IPv6", 40, MRC_IPV6_FIELDS};

/* IPv4, where there is no SRv6; RFC 791 */
#define MRC_IPV4_VERSION 0, 4
#define MRC_IPV4_IHL 4, 4
#define MRC_IPV4_DSCP 8, 6
#define MRC_IPV4_ECN 14, 2
#define MRC_IPV4_TOTAL_LENGTH 16, 16
#define MRC_IPV4_IDENTIFICATION 32, 16
#define MRC_IPV4_IP_FLAGS 48, 3
#define MRC_IPV4_FRAGMENT_OFFSET 51, 13
#define MRC_IPV4_TTL 64, 8
#define MRC_IPV4_PROTOCOL 72, 8
#define MRC_IPV4_HEADER_CHECKSUM 80, 16
#define MRC_IPV4_SRC 96, 32
#define MRC_IPV4_DST 128, 32
static const struct mrc_field MRC_IPV4_FIELDS[] = {
	{"version", 0, 4, 0, MRC_E_IP_VERSION, (const uint16_t[]){4, MRC_END}, 0},
	{"ihl", 4, 4, 0, MRC_E_IP_HEADER_LENGTH, (const uint16_t[]){5, MRC_END}, 0},
	{"dscp", 8, 6, 0, 0, NULL, 0},
	{"ecn", 14, 2, 0, 0, NULL, 0},
	{"total_length", 16, 16, 0, MRC_E_IP_LENGTH, NULL, MRC_COUNTS_ALL},
	{"identification", 32, 16, 0, 0, NULL, 0},
	{"ip_flags", 48, 3, 0, MRC_E_FRAGMENT, (const uint16_t[]){0, 2, 4, 6, MRC_END}, 0},
	{"fragment_offset", 51, 13, 0, MRC_E_FRAGMENT, (const uint16_t[]){0, MRC_END}, 0},
	{"ttl", 64, 8, 0, 0, NULL, 0},
	{"protocol", 72, 8, 0, MRC_E_NEXT_HEADER, (const uint16_t[]){17, MRC_END}, 0},
	{"header_checksum", 80, 16, 0, 0, NULL, 0},
	{"src", 96, 32, 0, 0, NULL, 0},
	{"dst", 128, 32, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_IPV4 = {"IPv4", 20, MRC_IPV4_FIELDS};

/* Segment routing header with one segment; RFC 8754, MRC 2.12 */
#define MRC_SRH_NEXT_HEADER 0, 8
#define MRC_SRH_HDR_EXT_LEN 8, 8
#define MRC_SRH_ROUTING_TYPE 16, 8
#define MRC_SRH_SEGMENTS_LEFT 24, 8
#define MRC_SRH_LAST_ENTRY 32, 8
#define MRC_SRH_SRH_FLAGS 40, 8
#define MRC_SRH_TAG 48, 16
#define MRC_SRH_SEGMENT 64, 128
static const struct mrc_field MRC_SRH_FIELDS[] = {
	{"next_header", 0, 8, 0, MRC_E_NEXT_HEADER, (const uint16_t[]){41, MRC_END}, 0},
	{"hdr_ext_len", 8, 8, 0, MRC_E_ROUTING, (const uint16_t[]){2, MRC_END}, 0},
	{"routing_type", 16, 8, 0, MRC_E_ROUTING, (const uint16_t[]){4, MRC_END}, 0},
	{"segments_left", 24, 8, 0, MRC_E_ROUTING, (const uint16_t[]){0, 1, MRC_END}, 0},
	{"last_entry", 32, 8, 0, MRC_E_ROUTING, (const uint16_t[]){0, MRC_END}, 0},
	{"srh_flags", 40, 8, 0, 0, NULL, 0},
	{"tag", 48, 16, 0, 0, NULL, 0},
	{"segment", 64, 128, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_SRH = {"SRH", 24, MRC_SRH_FIELDS};

/* UDP; RFC 768, MRC 2.2 */
#define MRC_UDP_SRC_PORT 0, 16
#define MRC_UDP_DST_PORT 16, 16
#define MRC_UDP_LENGTH 32, 16
#define MRC_UDP_CHECKSUM 48, 16
static const struct mrc_field MRC_UDP_FIELDS[] = {
	{"src_port", 0, 16, 0, 0, NULL, 0},
	{"dst_port", 16, 16, 0, MRC_E_UDP_PORT, (const uint16_t[]){4791, 4971, MRC_END}, 0},
	{"length", 32, 16, 0, MRC_E_UDP_LENGTH, NULL, MRC_COUNTS_ALL},
	{"checksum", 48, 16, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_UDP = {"UDP", 8, MRC_UDP_FIELDS};

/* Base transport header; IBTA 9.2, MRC 2.4 */
#define MRC_BTH_OPCODE 0, 8
#define MRC_BTH_SE 8, 1
#define MRC_BTH_M 9, 1
#define MRC_BTH_PAD 10, 2
#define MRC_BTH_TVER 12, 4
#define MRC_BTH_PKEY 16, 16
#define MRC_BTH_DEST_QPN 40, 24
#define MRC_BTH_A 64, 1
#define MRC_BTH_R 65, 1
#define MRC_BTH_RTX 66, 1
#define MRC_BTH_TS 67, 1
#define MRC_BTH_PSN 72, 24
static const struct mrc_field MRC_BTH_FIELDS[] = {
	{"opcode", 0, 8, 0, MRC_E_OPCODE, (const uint16_t[]){198, 199, 200, 201, 202, 203, 209, 216, 217, 220, 221, 222, MRC_END}, 0},
	{"se", 8, 1, 0, 0, NULL, 0},
	{"m", 9, 1, 0, 0, NULL, 0},
	{"pad", 10, 2, 0, 0, NULL, 0},
	{"tver", 12, 4, 0, MRC_E_TRANSPORT_VERSION, (const uint16_t[]){0, MRC_END}, 0},
	{"pkey", 16, 16, 0, 0, NULL, 0},
	{"dest_qpn", 40, 24, 0, 0, NULL, 0},
	{"a", 64, 1, 0, 0, NULL, 0},
	{"r", 65, 1, 0, 0, NULL, 0},
	{"rtx", 66, 1, 0, 0, NULL, 0},
	{"ts", 67, 1, 0, 0, NULL, 0},
	{"psn", 72, 24, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_BTH = {"BTH", 12, MRC_BTH_FIELDS};

/* Message header; MRC 2.5 */
#define MRC_METH_RQMSN 0, 16
#define MRC_METH_MSN 16, 16
static const struct mrc_field MRC_METH_FIELDS[] = {
	{"rqmsn", 0, 16, 0, 0, NULL, 0},
	{"msn", 16, 16, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_METH = {"METH", 4, MRC_METH_FIELDS};

/* Time stamp header; MRC 2.5 */
#define MRC_TSETH_TX_TIMESTAMP 0, 16
#define MRC_TSETH_TSR 16, 1
#define MRC_TSETH_FTYPE 28, 4
static const struct mrc_field MRC_TSETH_FIELDS[] = {
	{"tx_timestamp", 0, 16, 0, 0, NULL, 0},
	{"tsr", 16, 1, 0, 0, NULL, 0},
	{"ftype", 28, 4, 0, MRC_E_FTYPE, (const uint16_t[]){1, MRC_END}, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_TSETH = {"TSETH", 4, MRC_TSETH_FIELDS};

/* RDMA header; IBTA 9.3.3, MRC 1.4 */
#define MRC_RETH_VA 0, 64
#define MRC_RETH_RKEY 64, 32
#define MRC_RETH_DMA_LENGTH 96, 32
static const struct mrc_field MRC_RETH_FIELDS[] = {
	{"va", 0, 64, 0, 0, NULL, 0},
	{"rkey", 64, 32, 0, 0, NULL, 0},
	{"dma_length", 96, 32, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_RETH = {"RETH", 16, MRC_RETH_FIELDS};

/* Immediate data; IBTA 9.3.6 */
#define MRC_IMMDT_IMM 0, 32
static const struct mrc_field MRC_IMMDT_FIELDS[] = {
	{"imm", 0, 32, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_IMMDT = {"ImmDt", 4, MRC_IMMDT_FIELDS};

/* Acknowledgement header; IBTA 9.3.5, MRC 1.2 */
#define MRC_AETH_SYNDROME 0, 8
#define MRC_AETH_MSN 8, 24
static const struct mrc_field MRC_AETH_FIELDS[] = {
	{"syndrome", 0, 8, 0, 0, NULL, 0},
	{"msn", 8, 24, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_AETH = {"AETH", 4, MRC_AETH_FIELDS};

/* Selective acknowledgement header; MRC 2.6 */
#define MRC_SETH_TYPE 0, 4
#define MRC_SETH_NXT 4, 5
#define MRC_SETH_M 9, 2
#define MRC_SETH_PR 14, 1
#define MRC_SETH_ACK_PSN_OFFSET 16, 16
#define MRC_SETH_ENTROPY 32, 32
#define MRC_SETH_SPDCID 64, 16
#define MRC_SETH_DPDCID 80, 16
#define MRC_SETH_CACK_PSN 104, 24
#define MRC_SETH_CC_TYPE 128, 4
#define MRC_SETH_CC_FLAGS 132, 4
#define MRC_SETH_MPR 136, 8
#define MRC_SETH_SACK_OFFSET 144, 16
#define MRC_SETH_SACK_BITMAP 160, 64
static const struct mrc_field MRC_SETH_FIELDS[] = {
	{"type", 0, 4, 0, 0, NULL, 0},
	{"nxt", 4, 5, 0, 0, NULL, 0},
	{"m", 9, 2, 0, 0, NULL, 0},
	{"pr", 14, 1, 0, 0, NULL, 0},
	{"ack_psn_offset", 16, 16, 1, 0, NULL, 0},
	{"entropy", 32, 32, 0, 0, NULL, 0},
	{"spdcid", 64, 16, 0, 0, NULL, 0},
	{"dpdcid", 80, 16, 0, 0, NULL, 0},
	{"cack_psn", 104, 24, 0, 0, NULL, 0},
	{"cc_type", 128, 4, 0, 0, NULL, 0},
	{"cc_flags", 132, 4, 0, 0, NULL, 0},
	{"mpr", 136, 8, 0, 0, NULL, 0},
	{"sack_offset", 144, 16, 1, 0, NULL, 0},
	{"sack_bitmap", 160, 64, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_SETH = {"SETH", 28, MRC_SETH_FIELDS};

/* Congestion control state; MRC 2.7 */
#define MRC_CC_STATE_TX_TIMESTAMP 0, 16
#define MRC_CC_STATE_OOO_COUNT 17, 15
#define MRC_CC_STATE_RESTORE_CWND 32, 1
#define MRC_CC_STATE_RCV_CWND_PEN 33, 7
#define MRC_CC_STATE_RCVD_BYTES 40, 24
static const struct mrc_field MRC_CC_STATE_FIELDS[] = {
	{"tx_timestamp", 0, 16, 0, 0, NULL, 0},
	{"ooo_count", 17, 15, 0, 0, NULL, 0},
	{"restore_cwnd", 32, 1, 0, 0, NULL, 0},
	{"rcv_cwnd_pen", 33, 7, 0, 0, NULL, 0},
	{"rcvd_bytes", 40, 24, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_CC_STATE = {"CC_STATE", 8, MRC_CC_STATE_FIELDS};

/* Negative acknowledgement header; MRC 2.8 */
#define MRC_NETH_TYPE 0, 4
#define MRC_NETH_NXT 4, 5
#define MRC_NETH_NACK_REASON 16, 8
#define MRC_NETH_VENDOR 24, 8
#define MRC_NETH_ENTROPY 32, 32
#define MRC_NETH_SPDCID 64, 16
#define MRC_NETH_DPDCID 80, 16
#define MRC_NETH_NACK_PSN 104, 24
#define MRC_NETH_CC_TYPE 128, 4
#define MRC_NETH_CC_FLAGS 132, 4
#define MRC_NETH_TX_TIMESTAMP 144, 16
static const struct mrc_field MRC_NETH_FIELDS[] = {
	{"type", 0, 4, 0, 0, NULL, 0},
	{"nxt", 4, 5, 0, 0, NULL, 0},
	{"nack_reason", 16, 8, 0, 0, NULL, 0},
	{"vendor", 24, 8, 0, 0, NULL, 0},
	{"entropy", 32, 32, 0, 0, NULL, 0},
	{"spdcid", 64, 16, 0, 0, NULL, 0},
	{"dpdcid", 80, 16, 0, 0, NULL, 0},
	{"nack_psn", 104, 24, 0, 0, NULL, 0},
	{"cc_type", 128, 4, 0, 0, NULL, 0},
	{"cc_flags", 132, 4, 0, 0, NULL, 0},
	{"tx_timestamp", 144, 16, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_NETH = {"NETH", 20, MRC_NETH_FIELDS};

/* Reliability probe header; MRC 2.9 */
#define MRC_PETH_VENDOR 24, 8
#define MRC_PETH_PROBE_ID 32, 16
#define MRC_PETH_SPDCID 64, 16
#define MRC_PETH_DPDCID 80, 16
#define MRC_PETH_TX_TIMESTAMP 96, 16
#define MRC_PETH_TSR 112, 1
#define MRC_PETH_FTYPE 124, 4
static const struct mrc_field MRC_PETH_FIELDS[] = {
	{"vendor", 24, 8, 0, 0, NULL, 0},
	{"probe_id", 32, 16, 0, 0, NULL, 0},
	{"spdcid", 64, 16, 0, 0, NULL, 0},
	{"dpdcid", 80, 16, 0, 0, NULL, 0},
	{"tx_timestamp", 96, 16, 0, 0, NULL, 0},
	{"tsr", 112, 1, 0, 0, NULL, 0},
	{"ftype", 124, 4, 0, MRC_E_FTYPE, (const uint16_t[]){0, 1, MRC_END}, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_PETH = {"PETH", 16, MRC_PETH_FIELDS};

/* Endpoint request header; MRC 2.10 */
#define MRC_ERTH_TYPE 0, 4
#define MRC_ERTH_NXT 4, 5
#define MRC_ERTH_OP 14, 2
#define MRC_ERTH_VENDOR 24, 8
#define MRC_ERTH_PORT_STATUS_MASK 32, 32
#define MRC_ERTH_TX_TIMESTAMP 96, 16
#define MRC_ERTH_TSR 112, 1
#define MRC_ERTH_FTYPE 124, 4
static const struct mrc_field MRC_ERTH_FIELDS[] = {
	{"type", 0, 4, 0, 0, NULL, 0},
	{"nxt", 4, 5, 0, 0, NULL, 0},
	{"op", 14, 2, 0, 0, NULL, 0},
	{"vendor", 24, 8, 0, 0, NULL, 0},
	{"port_status_mask", 32, 32, 0, 0, NULL, 0},
	{"tx_timestamp", 96, 16, 0, 0, NULL, 0},
	{"tsr", 112, 1, 0, 0, NULL, 0},
	{"ftype", 124, 4, 0, MRC_E_FTYPE, (const uint16_t[]){0, 1, MRC_END}, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_ERTH = {"ERTH", 16, MRC_ERTH_FIELDS};

/* Endpoint response header; MRC 2.10, row 4 */
#define MRC_EETH_TYPE 0, 4
#define MRC_EETH_OP_ALTERNATIVE 10, 2
#define MRC_EETH_OP 12, 2
#define MRC_EETH_TX_TIMESTAMP 224, 16
static const struct mrc_field MRC_EETH_FIELDS[] = {
	{"type", 0, 4, 0, 0, NULL, 0},
	{"op_alternative", 10, 2, 0, 0, NULL, 0},
	{"op", 12, 2, 0, 0, NULL, 0},
	{"tx_timestamp", 224, 16, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_EETH = {"EETH", 36, MRC_EETH_FIELDS};

/* Invariant CRC; IBTA A17.3 */
#define MRC_ICRC_ICRC 0, 32
static const struct mrc_field MRC_ICRC_FIELDS[] = {
	{"icrc", 0, 32, 0, 0, NULL, 0},
	{NULL, 0, 0, 0, 0, NULL, 0},
};
static const struct mrc_header MRC_ICRC = {"iCRC", 4, MRC_ICRC_FIELDS};

/* Bits that the iCRC takes as ones, from the IP header it begins with to the BTH */
static const uint8_t MRC_ICRC_ONES_IPV6[60] = {
	0x0F, 0xFF, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x00, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};
static const uint8_t MRC_ICRC_ONES_IPV4[40] = {
	0x00, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xFF, 0x00, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xFF, 0xFF, 0x00, 0x00, 0x00, 0x00, 0xFF, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
};

/* The iCRC of a packet of `n` bytes from its inner IP header on, without the iCRC itself */
static inline uint32_t mrc_icrc(const uint8_t *packet, size_t n)
{
	int v6 = packet[0] >> 4 == 6;
	const uint8_t *ones = v6 ? MRC_ICRC_ONES_IPV6 : MRC_ICRC_ONES_IPV4;
	size_t masked = v6 ? sizeof MRC_ICRC_ONES_IPV6 : sizeof MRC_ICRC_ONES_IPV4;
	uint32_t sum = 0xFFFFFFFF;
	for (size_t i = 0; i < 8 + n; i++) { /* eight bytes of ones stand before it */
		sum ^= i < 8 ? 0xFF : packet[i - 8] | (i - 8 < masked ? ones[i - 8] : 0);
		for (int bit = 0; bit < 8; bit++)
			sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
	}
	return ~sum;
}

/* what follows the BTH, up to a NULL; the TSETH of data only if BTH.ts is 1 */
static const struct mrc_header *const *mrc_extensions(unsigned opcode)
{
	static const struct mrc_header *const chain0[] = {&MRC_METH, &MRC_TSETH, &MRC_RETH, NULL};
	static const struct mrc_header *const chain1[] = {&MRC_METH, &MRC_TSETH, &MRC_RETH, &MRC_IMMDT, NULL};
	static const struct mrc_header *const chain2[] = {&MRC_AETH, NULL};
	static const struct mrc_header *const chain3[] = {&MRC_ERTH, NULL};
	static const struct mrc_header *const chain4[] = {&MRC_EETH, NULL};
	static const struct mrc_header *const chain5[] = {&MRC_SETH, &MRC_CC_STATE, NULL};
	static const struct mrc_header *const chain6[] = {&MRC_NETH, NULL};
	static const struct mrc_header *const chain7[] = {&MRC_PETH, NULL};
	switch (opcode) {
	case 0xC6:
	case 0xC7:
	case 0xC8:
	case 0xCA:
		return chain0;
	case 0xC9:
	case 0xCB:
		return chain1;
	case 0xD1:
		return chain2;
	case 0xD8:
		return chain3;
	case 0xD9:
		return chain4;
	case 0xDC:
		return chain5;
	case 0xDD:
		return chain6;
	case 0xDE:
		return chain7;
	}
	return NULL;
}

#endif
