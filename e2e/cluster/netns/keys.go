package netns

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/vpc-cni/vpc-cni/e2e/account"
	"github.com/vpc-cni/vpc-cni/e2e/cluster"
	"github.com/vpc-cni/vpc-cni/ipamd/annotate"
)

// keyring is what the policy's parameter object says: which keys daemons may write, and which they once did.
type keyring struct {
	current []string
	known   map[string]bool
}

// keysOf gives the annotation keys behind a setting; a bad one is the daemon's to refuse.
func keysOf(setting string) []string {
	if setting == "" || setting == cluster.Unset {
		setting = "aws"
	}
	keys, _, err := annotate.Keys(setting)
	if err != nil {
		return nil
	}
	return keys
}

const keysSetting = "ANNOTATE_POD_IP_KEYS"

// inUse are the keys of the nodes' settings.
func (c *Cluster) inUse() (keys []string) {
	for _, n := range c.nodes {
		keys = append(keys, keysOf(n.settings[keysSetting])...)
	}
	return keys
}

// admit adds what settings name to the current keys, and returns when the server lets the daemons write them.
func (c *Cluster) admit(ctx context.Context, settings map[string]string) error {
	keys := c.inUse()
	if value, changed := settings[keysSetting]; changed {
		keys = append(keys, keysOf(value)...)
	}
	return c.setKeys(ctx, keys)
}

// retire leaves those current that the nodes' settings name; the others may be emptied and removed.
func (c *Cluster) retire(ctx context.Context) error { return c.setKeys(ctx, c.inUse()) }

func (c *Cluster) setKeys(ctx context.Context, keys []string) error {
	c.ring.Lock()
	defer c.ring.Unlock()
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if len(c.nodes) == 0 || slices.Equal(keys, c.keys.current) {
		return nil
	}
	if c.keys.known == nil {
		c.keys.known = map[string]bool{}
	}
	for _, key := range keys {
		c.keys.known[key] = true
	}
	retired := slices.DeleteFunc(slices.Sorted(maps.Keys(c.keys.known)), func(key string) bool { return slices.Contains(keys, key) })
	admin, err := c.api(nil)
	if err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"data": map[string]string{"current": strings.Join(keys, ","), "retired": strings.Join(retired, ",")}})
	if err != nil {
		return fmt.Errorf("write keys of the policy: %w", err)
	}
	err = admin.Patch(types.MergePatchType).Namespace(account.DaemonNamespace).Resource("configmaps").Name("aws-node-annotation-keys").
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("change keys of the policy: %w", err)
	}
	c.keys.current = keys
	return c.inForce(ctx, keys)
}

// inForce waits until the policies let a daemon write the keys, and refuse another: the server takes up objects a little
// later. It is asked by changes of a daemon's pod that it does not carry out.
func (c *Cluster) inForce(ctx context.Context, keys []string) error {
	asked := c.nodes[0]
	daemon, err := c.api(func(config *rest.Config) { asked.asDaemon(config) })
	if err != nil {
		return err
	}
	ask := func(key string) error {
		body := fmt.Sprintf(`{"metadata":{"annotations":{%q:"::1"}}}`, key)
		return daemon.Patch(types.MergePatchType).Namespace(account.DaemonNamespace).Resource("pods").Name(asked.podName()).
			Param("dryRun", "All").Body([]byte(body)).Do(ctx).Error()
	}
	return poll(ctx, "wait until the policies are in force", func() (bool, error) {
		if err := ask("example.org/nobodys"); !apierrors.IsInvalid(err) {
			return false, other(err)
		}
		for _, key := range keys {
			if err := ask(key); err != nil {
				return false, other(err)
			}
		}
		return true, nil
	})
}

// other is nil for what a policy or a role answers.
func other(err error) error {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		return nil
	}
	return err
}
