package hostnet

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// linkKey is a link's name as nftables compares it: sixteen bytes, the rest zero.
func linkKey(name string) []byte {
	key := make([]byte, unix.IFNAMSIZ)
	copy(key, name)
	return key
}

// key is the bytes of an element's key. Prefixes begin with their first address.
func (t SetType) key(text string) ([]byte, error) {
	switch t {
	case SetPrefix:
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("encode element %q: %w", text, err)
		}
		return p.Addr().AsSlice(), nil
	case SetAddr, SetAddrEnd:
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("encode element %q: %w", text, err)
		}
		return a.AsSlice(), nil
	case SetLinkEnd:
		name, err := strconv.Unquote(text)
		if err != nil || len(name) >= unix.IFNAMSIZ {
			return nil, fmt.Errorf("encode element %q: not a link's name", text)
		}
		return linkKey(name), nil
	case SetMarkEnd:
		mark, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			return nil, fmt.Errorf("encode element %q: %w", text, err)
		}
		return number(uint32(mark)), nil
	default:
		return nil, fmt.Errorf("encode element %q: set of %s", text, t)
	}
}

// encode turns elements into what the kernel takes.
func (t SetType) encode(elements []Element) ([]nftables.SetElement, error) {
	out := make([]nftables.SetElement, 0, len(elements))
	for _, e := range elements {
		key, err := t.key(e.Key)
		if err != nil {
			return nil, err
		}
		switch {
		case t == SetPrefix:
			out = append(out, nftables.SetElement{Key: key})
			if end := afterPrefix(e.Key); end.IsValid() {
				out = append(out, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
			}
		case t.verdicts():
			out = append(out, nftables.SetElement{Key: key, VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.Goto}})
		default:
			out = append(out, nftables.SetElement{Key: key})
		}
	}
	return out, nil
}

// afterPrefix is the first address behind a prefix; invalid behind the last address of all.
func afterPrefix(text string) netip.Addr {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Addr{}
	}
	last := p.Masked().Addr().As4()
	for i := range last {
		host := max(0, min(8, 8*(i+1)-p.Bits())) // host bits in this byte
		last[i] |= byte(1<<host - 1)
	}
	return netip.AddrFrom4(last).Next()
}

// decode is the reverse of encode. What another hand has put there is shown, in whatever form, so that it differs from
// everything wanted.
func (t SetType) decode(found []nftables.SetElement) []Element {
	if t == SetPrefix {
		return decodeIntervals(found)
	}
	elements := make([]Element, 0, len(found))
	for _, f := range found {
		e := Element{Key: t.text(f.Key)}
		if t.verdicts() {
			e.Goto = verdictChain(f.Val)
		}
		elements = append(elements, e)
	}
	return elements
}

// text is the reverse of key, for all types but prefixes.
func (t SetType) text(key []byte) string {
	switch {
	case (t == SetAddr || t == SetAddrEnd) && len(key) == addressLength:
		addr, _ := netip.AddrFromSlice(key)
		return addr.String()
	case t == SetLinkEnd:
		name, _, _ := bytes.Cut(key, []byte{0})
		return strconv.Quote(string(name))
	case t == SetMarkEnd && len(key) == 4:
		return fmt.Sprintf("0x%08x", binaryutil.NativeEndian.Uint32(key))
	}
	return fmt.Sprintf("%x", key)
}

// decodeIntervals pairs the starts and ends that the kernel keeps. The order in which it gives them differs between
// kernels, so they are sorted first: an end before the start of the next interval at the same address.
func decodeIntervals(found []nftables.SetElement) []Element {
	bounds := slices.Clone(found)
	slices.SortStableFunc(bounds, func(a, b nftables.SetElement) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 || a.IntervalEnd == b.IntervalEnd {
			return c
		}
		if a.IntervalEnd {
			return -1
		}
		return 1
	})
	var elements []Element
	for i := 0; i < len(bounds); i++ {
		if bounds[i].IntervalEnd {
			continue // the kernel keeps an end at 0.0.0.0 for the interval before everything
		}
		start, _ := netip.AddrFromSlice(bounds[i].Key)
		var end netip.Addr
		if i+1 < len(bounds) && bounds[i+1].IntervalEnd {
			end, _ = netip.AddrFromSlice(bounds[i+1].Key)
		}
		elements = append(elements, Element{Key: interval(start, end)})
	}
	return elements
}

// interval is the prefix that runs from start to before end, or both bounds where no prefix does.
func interval(start, end netip.Addr) string {
	for bits := 0; bits <= 32; bits++ {
		p := netip.PrefixFrom(start, bits)
		if p.Masked() == p && afterPrefix(p.String()) == end {
			return p.String()
		}
	}
	return fmt.Sprintf("%s to before %s", start, end)
}

// verdictChain is the chain of a goto; anything else gives a text that is no chain's name. A verdict is a list of
// attributes: NFTA_VERDICT_CODE, and NFTA_VERDICT_CHAIN where it has one.
func verdictChain(verdict []byte) string {
	const header = 4 // nlattr: length and type, two bytes each
	kind, chain := "unknown verdict", ""
	for len(verdict) >= header {
		length := int(binaryutil.NativeEndian.Uint16(verdict))
		if length < header || length > len(verdict) {
			return kind
		}
		data := verdict[header:length]
		switch binaryutil.NativeEndian.Uint16(verdict[2:]) & nl.NLA_TYPE_MASK {
		case unix.NFTA_VERDICT_CODE:
			if len(data) == 4 && int32(binaryutil.BigEndian.Uint32(data)) == unix.NFT_GOTO {
				kind = ""
			}
		case unix.NFTA_VERDICT_CHAIN:
			chain = string(bytes.TrimRight(data, "\x00"))
		}
		verdict = verdict[min(len(verdict), (length+3)&^3):] // attributes are padded to four bytes
	}
	if kind != "" {
		return kind
	}
	return chain
}

// missing is what is in a and not in b; both are lists without doubles.
func missing[T comparable](a, b []T) []T {
	in := make(map[T]bool, len(b))
	for _, x := range b {
		in[x] = true
	}
	var out []T
	for _, x := range a {
		if !in[x] {
			out = append(out, x)
		}
	}
	return out
}
