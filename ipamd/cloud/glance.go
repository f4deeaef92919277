package cloud

import (
	"context"
	"strings"
)

// The instance's metadata show what is attached, which addresses it has and which CIDRs the VPC has, seconds late, and cost no call
// to EC2: a node at rest need not read EC2 to know that nobody has changed anything.

// Changed tells whether Observe may give something else than it did last: an action was carried out since, or the metadata show
// other ENIs, addresses or CIDRs of the VPC than before that reading, or cannot be read.
func (c *Cloud) Changed(ctx context.Context) bool {
	c.mu.Lock()
	seen := c.seen
	c.mu.Unlock()
	return seen == "" || c.glance(ctx) != seen
}

// glance is what the metadata show of ENIs, addresses and the VPC's CIDRs, as one text; "" when they cannot be read.
func (c *Cloud) glance(ctx context.Context) string {
	c.mu.Lock()
	primary := c.identity.mac
	c.mu.Unlock()
	macs, err := c.metadata(ctx, "network/interfaces/macs")
	if err != nil {
		return ""
	}
	cidrs, err := c.metadata(ctx, macPath(primary, "vpc-ipv4-cidr-blocks"))
	if err != nil {
		return ""
	}
	var text strings.Builder
	text.WriteString(strings.Join(strings.Fields(cidrs), ",") + "\n")
	for line := range strings.FieldsSeq(macs) {
		mac := strings.TrimSuffix(line, "/")
		addresses, err := c.metadata(ctx, macPath(mac, "local-ipv4s"))
		if err != nil {
			return ""
		}
		text.WriteString(mac + " " + strings.Join(strings.Fields(addresses), ",") + "\n")
	}
	return text.String()
}

// remember keeps what the metadata showed before a reading of EC2.
func (c *Cloud) remember(seen string) {
	c.mu.Lock()
	c.seen = seen
	c.mu.Unlock()
}

// forget says that what was seen does not hold any more.
func (c *Cloud) forget() { c.remember("") }
