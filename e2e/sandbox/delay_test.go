package sandbox

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func TestDelayIsUniformAndSeeded(t *testing.T) {
	d := Delay{Min: 100 * time.Millisecond, Max: 1400 * time.Millisecond}
	const pods = 1000
	var sum time.Duration
	differ := 0
	for i := range pods {
		pod := types.NamespacedName{Namespace: "ns", Name: "p" + string(rune('a'+i%26)) + time.Duration(i).String()}
		got := d.of(1, pod)
		if got < d.Min || got >= d.Max {
			t.Fatalf("delay %s is outside %s", got, d)
		}
		if got != d.of(1, pod) {
			t.Fatal("equal seeds give different delays")
		}
		if got != d.of(2, pod) {
			differ++
		}
		sum += got
	}
	// The mean of 1,000 uniform draws is within 5 standard errors (1.3 s / sqrt(12 x 1000)) of the middle.
	if mean := sum / pods; mean < 690*time.Millisecond || mean > 810*time.Millisecond {
		t.Errorf("mean delay = %s, want about 750ms", mean)
	}
	if differ < pods/2 {
		t.Errorf("another seed changed %d of %d delays only", differ, pods)
	}
}

func TestParseDelay(t *testing.T) {
	for text, want := range map[string]Delay{
		"100ms-1400ms": {Min: 100 * time.Millisecond, Max: 1400 * time.Millisecond},
		"2s":           {Min: 2 * time.Second, Max: 2 * time.Second},
		"0s":           {},
	} {
		if got, err := ParseDelay(text); err != nil || got != want {
			t.Errorf("ParseDelay(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "2s-1s", "-1s", "1s-2s-3s"} {
		if got, err := ParseDelay(text); err == nil {
			t.Errorf("ParseDelay(%q) = %v, want an error", text, got)
		}
	}
}
