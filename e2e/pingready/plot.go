package pingready

import (
	"bytes"
	"fmt"
	"image/color"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The picture's size: two plots side by side on a page's width.
const (
	pictureWidth  = 11 * vg.Inch
	pictureHeight = 4.5 * vg.Inch
)

// colorOf tells the knobs apart, also for people who do not see red and green.
func colorOf(knob Knob) color.Color {
	if knob == Off {
		return color.RGBA{R: 213, G: 94, A: 255}
	}
	return color.RGBA{G: 114, B: 178, A: 255}
}

// plot draws the distribution of the time to first reply, and the stages.
func (r *Report) plot() ([]byte, error) {
	ecdf, err := r.plotFirstReply()
	if err != nil {
		return nil, fmt.Errorf("draw times to first reply: %w", err)
	}
	bars, err := r.plotStages()
	if err != nil {
		return nil, fmt.Errorf("draw stages: %w", err)
	}
	canvas := vgsvg.New(pictureWidth, pictureHeight)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: vg.Points(20), PadTop: vg.Points(8), PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(8)}
	plots := [][]*plot.Plot{{ecdf, bars}}
	for i, canvas := range plot.Align(plots, tiles, draw.New(canvas))[0] {
		plots[0][i].Draw(canvas)
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, fmt.Errorf("encode picture: %w", err)
	}
	return out.Bytes(), nil
}

// plotFirstReply is the empirical distribution of the time to first reply, both directions together.
func (r *Report) plotFirstReply() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Time to first reply"
	p.X.Label.Text = "ms after container start"
	p.Y.Label.Text = "share of pods and directions"
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Left = false
	for _, knob := range []Knob{Off, On} {
		pods := r.pods(knob)
		sample := append(values(pods, func(p Pod) *float64 { return p.PingReadyIn }), values(pods, func(p Pod) *float64 { return p.PingReadyOut })...)
		if len(sample) == 0 {
			continue
		}
		slices.Sort(sample)
		steps := plotter.XYs{{X: 0, Y: 0}}
		for i, value := range sample {
			steps = append(steps, plotter.XY{X: value, Y: float64(i+1) / float64(len(sample))})
		}
		curve, err := plotter.NewLine(steps)
		if err != nil {
			return nil, err
		}
		curve.StepStyle = plotter.PreStep
		curve.Color, curve.Width = colorOf(knob), vg.Points(1.5)
		p.Add(curve)
		p.Legend.Add("annotation "+string(knob), curve)
	}
	p.Add(plotter.NewGrid())
	return p, nil
}

// plotStages shows the median of each stage. A stage that no pod of a side has seen has no bar.
func (r *Report) plotStages() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "Stages of a pod's start (median)"
	p.Y.Label.Text = "ms after ADD exec"
	p.Legend.Top, p.Legend.Left = true, true
	const width = 22 // points: ten bars and their gaps fit half the picture
	var names []string
	for _, s := range stages() {
		names = append(names, s.name)
	}
	for i, knob := range []Knob{Off, On} {
		medians := make(plotter.Values, 0, len(names))
		for _, s := range stages() {
			median := 0.0
			if q := quantiles(values(r.pods(knob), s.of)); q.P50 != nil {
				median = *q.P50
			}
			medians = append(medians, median)
		}
		bars, err := plotter.NewBarChart(medians, vg.Points(width))
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = colorOf(knob), 0
		bars.Offset = vg.Points(width * (float64(i) - 0.5))
		p.Add(bars)
		p.Legend.Add("annotation "+string(knob), bars)
	}
	p.NominalX(names...)
	p.X.Tick.Label.Rotation = 0.35 // radians: the names are longer than the bars are wide
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	return p, nil
}
