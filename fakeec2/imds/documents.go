package imds

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/vpc-cni/vpc-cni/fakeec2/vpc"
)

const (
	// credentialsLast is how long a role's credentials are good; source: EC2 user guide, "at most six hours".
	credentialsLast = 6 * time.Hour
	// credentialsTurn is how often they change. New ones are there at least five minutes before the old ones expire.
	credentialsTurn = time.Hour
)

// identity is the instance identity document. Source: EC2 user guide; version is that of the document's form.
type identity struct {
	AccountID        string  `json:"accountId"`
	Architecture     string  `json:"architecture"`
	AvailabilityZone string  `json:"availabilityZone"`
	ImageID          string  `json:"imageId"`
	InstanceID       string  `json:"instanceId"`
	InstanceType     string  `json:"instanceType"`
	KernelID         *string `json:"kernelId"`
	PendingTime      string  `json:"pendingTime"`
	PrivateIP        string  `json:"privateIp"`
	RamdiskID        *string `json:"ramdiskId"`
	Region           string  `json:"region"`
	Version          string  `json:"version"`
}

func (s *Server) identityDocument(i vpc.Instance) string {
	return document(identity{
		AccountID: s.model.Account(), Architecture: "x86_64", AvailabilityZone: i.AZ, ImageID: i.ImageID, InstanceID: i.ID,
		InstanceType: i.Type, PendingTime: stamp(i.LaunchTime), PrivateIP: address(i.PrivateIP), Region: s.model.Region(),
		Version: "2017-09-30",
	})
}

func (s *Server) profileInfo(i vpc.Instance) string {
	return document(struct {
		Code, LastUpdated, InstanceProfileArn, InstanceProfileId string
	}{
		"Success", stamp(i.LaunchTime),
		fmt.Sprintf("arn:aws:iam::%s:instance-profile/%s", s.model.Account(), i.Role), "AIPAFAKE" + unique(i.ID),
	})
}

// credentials are a role's credentials. They are visibly fake, differ between instances, and change as real ones do.
func credentials(i vpc.Instance, now time.Time) string {
	since := now.Truncate(credentialsTurn)
	return document(struct {
		Code, LastUpdated, Type, AccessKeyId, SecretAccessKey, Token, Expiration string
	}{
		"Success", stamp(since), "AWS-HMAC", accessKey(i.ID), secretKey(i.ID), sessionToken(i.ID, since), stamp(since.Add(credentialsLast)),
	})
}

func accessKey(instance string) string { return "ASIAFAKE" + unique(instance) }
func secretKey(instance string) string { return "fake-secret-of-" + instance }

func sessionToken(instance string, since time.Time) string {
	return fmt.Sprintf("fake-token-of-%s-since-%d", instance, since.Unix())
}

// Key gives what an access key stands for that an instance with a role got from its metadata: its secret, and whether a session
// token is good now. An endpoint that verifies signatures asks for it.
func (s *Server) Key(id string) (secret string, good func(token string) bool, known bool) {
	for _, i := range s.model.Instances() {
		if i.Role == "" || accessKey(i.ID) != id {
			continue
		}
		return secretKey(i.ID), func(token string) bool {
			now := s.options.Now()
			for since := now.Truncate(credentialsTurn); since.Add(credentialsLast).After(now); since = since.Add(-credentialsTurn) {
				if token == sessionToken(i.ID, since) {
					return true
				}
			}
			return false
		}, true
	}
	return "", nil, false
}

// unique is the end of an instance's id in the form of an IAM id: what tells instances apart in 12 capitals and digits.
func unique(instance string) string {
	const length = 12
	return strings.ToUpper(instance[max(0, len(instance)-length):])
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// document prints as metadata do: indented by two, no newline at the end.
func document(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		// Only strings go in, and every string can be printed.
		panic(fmt.Sprintf("print metadata document: %v", err))
	}
	return string(text)
}

// address is "" for none.
func address(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// signature stands for a signature of the identity document. It is visibly fake: nothing here has Amazon's keys.
func signature(kind, instance string) string {
	return base64.StdEncoding.EncodeToString([]byte("fake " + kind + " of the identity document of " + instance))
}

// putNotices adds what is announced to the instance; nothing is there otherwise (404). Source: EC2 user guide, "Spot Instance
// interruption notices" and "EC2 instance rebalance recommendations".
func putNotices(put func(path, content string), n vpc.Notices) {
	if !n.InterruptionAt.IsZero() {
		put("spot/instance-action", oneLine(struct {
			Action string `json:"action"`
			Time   string `json:"time"`
		}{n.InterruptionAction, stamp(n.InterruptionAt)}))
		if n.InterruptionAction == "terminate" {
			put("spot/termination-time", stamp(n.InterruptionAt))
		}
	}
	if !n.RebalanceAt.IsZero() {
		put("events/recommendations/rebalance", oneLine(struct {
			NoticeTime string `json:"noticeTime"`
		}{stamp(n.RebalanceAt)}))
	}
}

func oneLine(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("print metadata document: %v", err)) // only strings go in
	}
	return string(text)
}
