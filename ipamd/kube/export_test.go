package kube

// Limited tells whether the client keeps requests back by a rate of its own.
func (c *Client) Limited() bool { return c.core.GetRateLimiter() != nil }
