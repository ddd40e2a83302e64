import clsx from 'clsx';
import { format } from 'date-fns';
import { createRoot } from 'react-dom/client';
import { create } from 'zustand';

const useCount = create((set) => ({ count: 0, more: () => set((state) => ({ count: state.count + 1 })) }));

function App() {
  const { count, more } = useCount();
  return (
    <button className={clsx('count', { many: count > 9 })} onClick={more}>
      {count} on {format(new Date(), 'yyyy-MM-dd')}
    </button>
  );
}

createRoot(document.getElementById('root')).render(<App />);
