package ipamd

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vpc-cni/vpc-cni/ipamd/config"
	"github.com/vpc-cni/vpc-cni/ipamd/introspect"
)

// relisten is the pace of attempts to serve health checks, introspection or metrics where the socket or port is taken; pods
// do not depend on any.
const relisten = 10 * time.Second

// pages are what introspection and the local socket serve.
func (d *daemon) pages() map[string]introspect.Page {
	return map[string]introspect.Page{
		"/v1/enis":               d.eniPage,
		"/v1/status":             d.statusPage,
		"/v1/explain":            d.explainPage,
		"/v1/ipamd-env-settings": func(context.Context) (any, error) { return d.settings.Given, nil },
		"/v1/networkutils-env-settings": func(context.Context) (any, error) {
			return config.Networking(d.settings.Given), nil
		},
	}
}

// serveHTTP adds the local socket to the group, and introspection and metrics unless they are turned off.
func (d *daemon) serveHTTP(ctx context.Context, group *errgroup.Group) {
	pages := introspect.Pages(d.pages())
	group.Go(func() error {
		return d.keepServing(ctx, "VPC_CNI_HEALTH_SOCKET", func(ctx context.Context) error {
			return introspect.Around(d.around).ServeLocal(ctx, "unix:"+d.settings.HealthSocket, d.health(), pages)
		})
	})
	if !d.settings.DisableIntrospection {
		group.Go(func() error {
			return d.keepServing(ctx, "INTROSPECTION_BIND_ADDRESS", func(ctx context.Context) error {
				return introspect.Around(d.around).Serve(ctx, d.settings.IntrospectionAddress, pages)
			})
		})
	}
	if !d.settings.DisableMetrics {
		group.Go(func() error {
			return d.keepServing(ctx, "VPC_CNI_METRICS_BIND_ADDRESS", func(ctx context.Context) error {
				return introspect.Around(d.around).Serve(ctx, d.settings.MetricsAddress, d.metrics.Handler())
			})
		})
	}
}

// keepServing serves until ctx ends. A port that is taken is logged with the setting that moves it, and tried again.
func (d *daemon) keepServing(ctx context.Context, setting string, serve func(context.Context) error) error {
	for {
		err := serve(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		d.log.Error("not served, trying again", "setting", setting, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(relisten):
		}
	}
}
